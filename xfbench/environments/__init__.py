"""Environments of the frameworks: their creation from locks, their cache, and their checks."""
