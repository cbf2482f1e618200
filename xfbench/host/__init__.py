"""The machine that launches run on: what it is, what it can do, and what else goes on in it."""
