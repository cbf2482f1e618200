"""Benchmarks for `pytest --benchmark-only`, one for each cell, and the selection of cells."""
