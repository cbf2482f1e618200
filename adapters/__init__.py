"""The frameworks, one folder each: what it is, how to get it, and the translation into it."""

if __name__ == "adapters":
    raise ImportError("this package is called xfbench.adapters: import that name instead")
