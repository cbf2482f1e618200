"""Features of HPC systems that a framework may support, and the result of probing a feature."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

# Groups in the order of the table.
GROUPS = {
    "ranks": {
        "ranks": "several ranks on a node",
        "own_cores": "ranks pinned to separate cores",
        "joining": "gradients combined by the framework itself",
        "mpich": "gradients combined by the MPICH of its environment",
    },
    "launching": {
        "mpirun": "started by the system's mpirun",
        "mpi": "gradients combined by mpirun's MPI",
        "pmix": "rank numbers received from mpirun by PMIx",
        "native": "ranks found from mpirun's information alone",
        "slurm": "started by Slurm",
        "native_slurm": "ranks found from Slurm's information alone",
        "modules": "runs from environment modules",
    },
    "hardware": {
        "affinity": "threads stay on the assigned cores",
        "transparent_huge_pages": "memory in transparent huge pages",
        "huge_pages": "memory in reserved huge pages",
        "numa": "memory on the selected NUMA node",
        "high_bandwidth": "memory on MCDRAM or HBM",
        "fast_network": "own libraries for fast networks (verbs, libfabric, UCX, NCCL)",
        "fast_mpi": "MPICH's libraries for fast networks",
        "gpus": "several GPUs",
    },
    "ending": {"signal": "checkpoint on SIGTERM, then resume"},
}
FEATURES = {name: title for group in GROUPS.values() for name, title in group.items()}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


class Support(BaseModel):
    """The result of probing one feature.

    `supported` is "not here" if the feature cannot be tested on the machine.
    `evidence` is what the probe observed, in one line that names no host and no path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature: str
    supported: Literal["yes", "no", "not here"]
    evidence: str
