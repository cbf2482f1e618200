"""The command on a cluster's login node, and the records that it prints."""

import json
import sys

XFBENCH = [sys.executable, "-P", "-m", "xfbench"]


def read_records(run):
    """Return the records that a finished run printed."""
    assert run.stdout, run.stderr
    return json.loads(run.stdout)["records"]
