"""From settings and experiment files to a plan: matrices, cells, and the order of launches."""
