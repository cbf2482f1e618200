"""What records say together: statistics, leaderboards, comparisons, scaling and prediction.

Records go in, values come out; how they look is the business of `layout` and `report`.
"""
