"""One TOML file per site: what a machine's own ways are."""
