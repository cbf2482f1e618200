"""The machine that launches run on: facts, limits, and activity other than the launches."""
