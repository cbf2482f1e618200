"""How processes are started: each launcher turns one command into the commands that run it."""

if __name__ == "launchers":
    raise ImportError("this package is called xfbench.launchers: import that name instead")
