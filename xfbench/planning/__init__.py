"""Plans built from settings and experiment files: matrices, cells, and the order of launches."""
