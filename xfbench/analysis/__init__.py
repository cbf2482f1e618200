"""Statistics, leaderboards, comparisons, scaling and prediction, computed from records.

The functions take records and return values. `layout` and `report` render them.
"""
