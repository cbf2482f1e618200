"""The results folder: immutable records, and tools to find, merge, check and export them."""
