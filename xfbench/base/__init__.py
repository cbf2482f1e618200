"""Utilities for all packages: errors, files, locks, digests, processes and terminal text."""
