"""Ranks under an MPI's start command: Open MPI's, MPICH's and those made from it, or a site's own.

Their binding is switched off: ranks bound to one core with many threads are the commonest
silent error. Affinity is the worker's to set, once.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from xfbench.base.errors import UnavailableError
from xfbench.base.processes import Command, CommandError, output
from xfbench.launchers.resources import Resources, wrap_command

# Library name by family, and what the program says of itself. Intel MPI is made from MPICH.
LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12"}
_FAMILY_BY_SIGN = {
    **dict.fromkeys(("Open MPI", "OpenRTE", "PRTE"), "openmpi"),
    **dict.fromkeys(("HYDRA", "Intel(R) MPI"), "mpich"),
}
_UNBOUND = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # Containers have no other user; elsewhere nobody is root.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def build_commands(
    command: Command, resources: Resources, program: str = "mpirun", family: str = "openmpi"
) -> list[Command]:
    """The one command that starts all ranks through `program`, which is of that family."""
    start_words = (
        openmpi_words(program, resources)
        if family == "openmpi"
        else mpich_words(program, resources)
    )
    start_command = wrap_command(start_words, command, resources)
    return [start_command.with_environment(_UNBOUND) if family == "openmpi" else start_command]


def openmpi_words(program: str, resources: Resources) -> tuple[str, ...]:
    """Open MPI's words, so many ranks on each node."""
    hosts = [f"{host}:{resources.per_node}" for host in resources.hosts]
    host_options = ("--host", ",".join(hosts)) if hosts else ()
    mapping_options = ("--map-by", f"ppr:{resources.per_node}:node")
    return (
        program,
        "-n",
        str(resources.ranks),
        *mapping_options,
        *host_options,
        *resources.options,
    )


def mpich_words(program: str, resources: Resources) -> tuple[str, ...]:
    """MPICH's words, which Intel MPI understands too."""
    host_options = ("-hosts", ",".join(resources.hosts)) if resources.hosts else ()
    mapping_options = ("-ppn", str(resources.per_node), "-bind-to", "none")
    return (
        program,
        "-n",
        str(resources.ranks),
        *mapping_options,
        *host_options,
        *resources.options,
    )


def build_site_commands(
    command: Command, resources: Resources, site_words: Sequence[str]
) -> list[Command]:
    """The one command that starts all ranks through a site's own words (ibrun, jsrun)."""
    return [
        wrap_command(
            (*resources.fill_placeholders(site_words), *resources.options), command, resources
        )
    ]


def detect_family(program: str) -> str:
    """Which MPI `program` belongs to. Raises UnavailableError, with what to do."""
    if not shutil.which(program):
        raise UnavailableError(
            f"{program} is not on the PATH: load a module with an MPI, install Open MPI or "
            "MPICH, or use --launcher local"
        )
    try:
        version_text = output([program, "--version"], timeout=60)
    except CommandError as error:
        raise UnavailableError(f"{program} does not say what it is: {error}") from error
    families = [family for sign, family in _FAMILY_BY_SIGN.items() if sign in version_text]
    if not families:
        first_line = version_text.strip().partition("\n")[0]
        raise UnavailableError(f"{program} is of no MPI that is known here: {first_line!r}")
    return families[0]


def find_library(program: str, family: str, search_folders: Sequence[str] = ()) -> Path | None:
    """The MPI library that belongs to `program`: beside it, or in one of the folders `search`."""
    program_path = shutil.which(program)
    roots = [Path(program_path).resolve().parent.parent] if program_path else []
    folders = [root / name for root in roots for name in ("lib", "lib64", "lib/release")]
    folders += [Path(folder) for folder in search_folders if folder]
    folders += [folder for root in roots for folder in sorted(root.glob("lib/*-linux-gnu*"))]
    files = (folder / LIBRARIES[family] for folder in folders)
    return next((file for file in files if file.exists()), None)
