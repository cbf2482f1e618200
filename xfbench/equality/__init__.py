"""Proof that frameworks train the same network: cases, the oracle, tolerances, certificates.

The oracle is the `reference` adapter in float64. Runs of this adapter in float32 show how far
rounding may move each number. Nothing here imports a framework: workers receive cases and return
summaries of their results.
"""
