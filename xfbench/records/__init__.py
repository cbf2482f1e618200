"""The schema of results: what a record is, where it comes from, and that it is unchanged."""
