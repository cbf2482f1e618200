"""The launchers, which start the ranks of a launch.

Each launcher turns the command of a single rank into the commands that start all ranks.
"""

if __name__ == "launchers":
    raise ImportError("import this package as xfbench.launchers")
