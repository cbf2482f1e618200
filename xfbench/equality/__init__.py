"""Proof that frameworks train the same network: cases, the oracle, tolerances, certificates.

The oracle is the `reference` adapter in float64; what rounding may do to each number is
measured with the same adapter in float32. Nothing here imports a framework: cases go to
workers, sketches come back.
"""
