"""The benchmarks that `pytest --benchmark-only` runs, one per cell, and which cells those are."""
