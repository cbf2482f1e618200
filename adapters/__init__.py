"""The frameworks, one folder each: its description, its environment, and the adapter code."""

if __name__ == "adapters":
    raise ImportError("import this package as xfbench.adapters")
