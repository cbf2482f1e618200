"""The adapters, one folder per framework: code, `adapter.toml` and the lock of the environment."""

if __name__ == "adapters":
    raise ImportError("import this package as xfbench.adapters")
