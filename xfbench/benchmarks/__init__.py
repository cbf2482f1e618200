"""The benchmarks of `pytest --benchmark-only`, one per cell, and the selection of cells."""
