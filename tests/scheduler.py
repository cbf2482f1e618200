"""Which tests stay together in one of pytest-xdist's processes.

Tests that share an expensive session fixture stay together. So do the tests of adapters and of
equality, which train with two threads: two of them at the same time would need four cores.

pytest-xdist's own groups (``--dist loadgroup``) change the ids of tests, and pytest 9.2 then no
longer finds them in the groups. This scheduler looks at paths alone.
"""

from xdist.scheduler import LoadScopeScheduling

# Paths below tests/; the tests of one group run one after another in one process.
GROUPS = {
    "training": ("adapters", "equality", "training"),
    "readers": ("datasets/test_own_tools.py", "datasets/test_photographs.py"),
    "cluster": ("cluster",),
    "commands": ("cli/test_commands.py", "cli/test_study.py"),
    "documents": ("docs/test_running.py",),
    "packaging": ("test_packaging.py",),
    "report": ("rendering/report",),
    "studies": ("studies/test_smoke.py",),
}


class GroupScheduling(LoadScopeScheduling):
    """Give the largest group to the first free process, and all other tests one at a time."""

    def _split_scope(self, nodeid):
        path = nodeid.partition("::")[0].removeprefix("tests/")
        for group, members in GROUPS.items():
            if any(f"{path}/".startswith(f"{member}/") for member in members):
                return group
        return nodeid


def make_scheduler(config, log):
    """Return the scheduler, for pytest-xdist's hook of this name."""
    return GroupScheduling(config, log)
