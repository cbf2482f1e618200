"""A Slurm cluster on this machine for one command of xfbench, given on its login node.

python -m tests.cluster study run strong-scaling --size laptop --launcher slurm
"""

import argparse
import os
import subprocess
import sys

from tests.cluster import slurm


def main() -> None:
    """Start the nodes, give the command, end them; the exit status is the command's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=len(os.sched_getaffinity(0)), help="of a node")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what follows `xfbench`")
    chosen = parser.parse_args()
    place, words = slurm.place()
    if place is None:
        sys.exit(f"no cluster: {words}")
    cluster = slurm.Cluster(place, count=chosen.nodes, cpus=chosen.cpus)
    argv = cluster.login.inside(sys.executable, "-P", "-m", "xfbench", *chosen.command)
    try:
        status = subprocess.run(argv, env=cluster.environment, check=False).returncode
    finally:
        cluster.end()
    sys.exit(status)


if __name__ == "__main__":
    main()
