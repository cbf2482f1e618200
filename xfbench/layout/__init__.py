"""Tables for people and programs: rows, columns and output formats."""
