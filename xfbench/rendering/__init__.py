"""Rendering of results: tables in every format, and the HTML report."""
