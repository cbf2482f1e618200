"""Tuning: search for a framework's best setting for a workload, store it, and use it."""
