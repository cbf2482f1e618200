"""The one schema of results: what a record is, where it is from, and that nobody changed it."""
