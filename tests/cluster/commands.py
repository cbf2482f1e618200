"""The command on a cluster's login node, and the records that it prints."""

import json
import sys

XFBENCH = [sys.executable, "-P", "-m", "xfbench"]
# Rarely, a rank of MPICH cannot read the other's address in MPI_Init: docs/findings.md.
MPICH_ADDRESS_ERROR = "MPIDI_UCX_comm_addr_exchange"
# A launch that hangs ends so. It was seen once, in a job of Slurm; the cause is unknown.
TIMED_OUT = "timed_out"


def read_records(run):
    """Return the records that a finished run printed."""
    assert run.stdout, run.stderr
    return json.loads(run.stdout)["records"]


def run_until_mpich_starts(cluster, *words, results, attempts=3, **options):
    """Run a command on the login node; return the completed processes.

    Launches that MPICH_ADDRESS_ERROR or their time limit ended are done again. The output of all
    launches is printed then: UCX writes its own error to standard output. `results` is the results
    folder.
    """
    processes = []
    for attempt in range(attempts):
        processes.append(cluster.run(*words, *["--resume"][:attempt], **options))
        if not any(word in processes[-1].stderr for word in (MPICH_ADDRESS_ERROR, TIMED_OUT)):
            break
        for file in results.glob("runs/*/stdout*"):
            print(f"{file.parent.name}/{file.name}: {file.read_text(errors='replace')}")
    return processes
