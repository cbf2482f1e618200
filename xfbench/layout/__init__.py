"""Tables as people and programs read them: rows and columns, and the formats they come in."""
