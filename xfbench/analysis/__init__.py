"""Leaderboards, comparisons, costs, scaling and prediction, computed from records.

The functions take records and return values. `xfbench/rendering` renders the values.
"""
