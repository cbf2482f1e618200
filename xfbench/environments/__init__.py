"""Frameworks' environments: made from locks, found again, and checked before they are used."""
