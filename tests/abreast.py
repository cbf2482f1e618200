"""Which tests stay in one of the processes that run side by side: those that share what is dear
to make.

pytest-xdist's own groups (``--dist loadgroup``) are written into the tests' ids, where pytest 9.2
no longer reads them: every process would make everything. `Together` asks for paths alone.
"""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    *("adapters", "cluster", "report"),
    *("test_packaging.py", "test_workflow.py", "data/test_photographs.py"),
)


class Together(LoadScopeScheduling):
    """The largest group goes first to a process that waits; what is in none goes one by one."""

    def _split_scope(self, nodeid):
        path = nodeid.partition("::")[0].removeprefix("tests/")
        return next((one for one in TOGETHER if f"{path}/".startswith(f"{one}/")), nodeid)


def make_scheduler(config, log):
    """For pytest-xdist's hook of this name."""
    return Together(config, log)
