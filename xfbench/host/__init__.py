"""The machine that launches run on: its facts, its limits and its other activity."""
