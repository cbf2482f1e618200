"""What frameworks may take from an HPC system: features that are tried, and an answer's form."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

# By group, in the order of the table.
GROUPS = {
    "ranks": {
        "ranks": "several ranks on a node",
        "own_cores": "ranks keep to cores of their own",
        "joining": "gradients joined by its own means",
        "mpich": "gradients joined by the MPICH of its environment",
    },
    "launching": {
        "mpirun": "started by the system's mpirun",
        "mpi": "gradients joined by mpirun's MPI",
        "pmix": "mpirun tells its place by PMIx",
        "native": "finds its ranks by what mpirun tells alone",
        "slurm": "started by Slurm",
        "native_slurm": "finds its ranks by what Slurm tells alone",
        "modules": "runs out of environment modules",
    },
    "hardware": {
        "affinity": "threads keep to the cores given",
        "transparent_huge_pages": "memory in transparent huge pages",
        "huge_pages": "memory in reserved huge pages",
        "numa": "memory on the NUMA node chosen",
        "high_bandwidth": "memory on MCDRAM or HBM",
        "fast_network": "fast networks' libraries (verbs, libfabric, UCX, NCCL) of its own",
        "fast_mpi": "fast networks' libraries, of that MPICH",
        "gpus": "several GPUs",
    },
    "ending": {"signal": "checkpoint on SIGTERM, then on"},
}
FEATURES = {name: title for group in GROUPS.values() for name, title in group.items()}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


class Support(BaseModel):
    """What a probe saw of one feature of HPC systems: "not here" where there is nothing to try.

    `evidence` is what was seen, in a line that names no host and no place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature: str
    supported: Literal["yes", "no", "not here"]
    evidence: str
