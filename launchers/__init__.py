"""Launchers: each turns one command into the commands that start all ranks."""

if __name__ == "launchers":
    raise ImportError("this package is called xfbench.launchers: import that name instead")
