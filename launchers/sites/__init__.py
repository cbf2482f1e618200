"""Site configurations, one TOML file per site."""
