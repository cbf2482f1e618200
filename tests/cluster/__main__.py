"""Run one xfbench command on the login node of a Slurm cluster on this machine.

python -m tests.cluster study run strong-scaling --size laptop --launcher slurm
"""

import argparse
import os
import subprocess
import sys

from tests.cluster import slurm


def main() -> None:
    """Start the nodes, run the command, stop the nodes; exit with the command's status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=len(os.sched_getaffinity(0)), help="of a node")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what follows `xfbench`")
    options = parser.parse_args()
    node_module, description = slurm.choose_node_module()
    if node_module is None:
        sys.exit(f"no cluster: {description}")
    cluster = slurm.Cluster(node_module, count=options.nodes, cpus=options.cpus)
    argv = cluster.login.inside(sys.executable, "-P", "-m", "xfbench", *options.command)
    try:
        status = subprocess.run(argv, env=cluster.environment, check=False).returncode
    finally:
        cluster.end()
    sys.exit(status)


if __name__ == "__main__":
    main()
