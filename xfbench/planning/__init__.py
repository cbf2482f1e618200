"""Planning: matrices of settings become cells, and cells become launches in order."""
