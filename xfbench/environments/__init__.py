"""Environments of the frameworks: created from locks, cached, and checked before use."""
