"""The built-in experiments: every one is a TOML file in this folder, and nothing else."""
