"""The machine that launches run on: its facts, limits and sites, and other activity on it."""
