"""Data sets on disk: brought into a form of our own, from one format into another, and checked."""
