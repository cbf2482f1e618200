"""A pytest-xdist scheduler that keeps groups of tests in one process.

Tests that share an expensive session fixture form a group. So do the tests of adapters and of
equality, the studies and the commands of the documentation, which train with two threads: two of
them in parallel would need four cores, and take several times as long.

pytest-xdist's own groups (``--dist loadgroup``) change test ids, and pytest 9.2 then does not find
the tests. This scheduler uses only paths.
"""

from xdist.scheduler import LoadScopeScheduling

# Paths below tests/. The tests of a group run one after another in one process.
GROUPS = {
    "training": (
        "adapters",
        "docs/test_running.py",
        "equality",
        "studies/test_smoke.py",
        "training",
    ),
    "readers": ("datasets/test_own_tools.py", "datasets/test_photographs.py"),
    "cluster": ("cluster",),
    "commands": ("cli/test_commands.py", "cli/test_study.py"),
    "packaging": ("test_packaging.py",),
    "report": ("rendering/report",),
}


class GroupScheduling(LoadScopeScheduling):
    """A scheduler that assigns the largest group first and all other tests one at a time."""

    def _split_scope(self, nodeid):
        path = nodeid.partition("::")[0].removeprefix("tests/")
        for group, members in GROUPS.items():
            if any(f"{path}/".startswith(f"{member}/") for member in members):
                return group
        return nodeid


def make_scheduler(config, log):
    """Return the scheduler for pytest-xdist's hook."""
    return GroupScheduling(config, log)
