"""Data sets on disk: prepared, converted between formats, and checked."""
