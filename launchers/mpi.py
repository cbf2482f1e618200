"""The MPI launcher: Open MPI, MPICH and its derivatives, or a site's own start command.

It switches off the pinning of MPI. Ranks with many threads on one core are the most common
silent error. Only the worker sets the affinity.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from xfbench.base.errors import UnavailableError
from xfbench.base.processes import Command, CommandError, output
from xfbench.launchers.resources import Resources, wrap_command

# Library name by family, and text in the output of --version. Intel MPI derives from MPICH.
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
    # Containers often run as root.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def build_commands(
    command: Command, resources: Resources, program: str = "mpirun", family: str = "openmpi"
) -> list[Command]:
    """Return the command that starts all ranks with `program`, which belongs to `family`."""
    start_words = (
        openmpi_start_words(program, resources)
        if family == "openmpi"
        else mpich_start_words(program, resources)
    )
    start_command = wrap_command(start_words, command, resources)
    return [start_command.with_environment(_UNBOUND) if family == "openmpi" else start_command]


def openmpi_start_words(program: str, resources: Resources) -> tuple[str, ...]:
    """Return Open MPI's start words, with the same number of ranks on each node."""
    hosts = [f"{host}:{resources.ranks_per_node}" for host in resources.hosts]
    host_options = ("--host", ",".join(hosts)) if hosts else ()
    mapping_options = ("--map-by", f"ppr:{resources.ranks_per_node}:node")
    return (
        program,
        "-n",
        str(resources.ranks),
        *mapping_options,
        *host_options,
        *resources.options,
    )


def mpich_start_words(program: str, resources: Resources) -> tuple[str, ...]:
    """Return MPICH's start words, which Intel MPI understands too."""
    host_options = ("-hosts", ",".join(resources.hosts)) if resources.hosts else ()
    mapping_options = ("-ppn", str(resources.ranks_per_node), "-bind-to", "none")
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
    """Return the command that starts all ranks with a site's own words (ibrun, jsrun)."""
    return [
        wrap_command(
            (*resources.fill_placeholders(site_words), *resources.options), command, resources
        )
    ]


def detect_family(program: str) -> str:
    """Return the MPI family of `program`. Raises UnavailableError, which says what to do."""
    if not shutil.which(program):
        raise UnavailableError(
            f"{program} is not on the PATH: load a module with an MPI, install Open MPI or "
            "MPICH, or use --launcher local"
        )
    try:
        version_text = output([program, "--version"], timeout=60)
    except CommandError as error:
        raise UnavailableError(f"{program} --version failed: {error}") from error
    families = [family for sign, family in _FAMILY_BY_SIGN.items() if sign in version_text]
    if not families:
        first_line = version_text.strip().partition("\n")[0]
        raise UnavailableError(f"{program} is not Open MPI, MPICH or Intel MPI: {first_line!r}")
    return families[0]


def find_library(program: str, family: str, search_folders: Sequence[str] = ()) -> Path | None:
    """Return the MPI library of `program`: next to it, or in one of `search_folders`."""
    program_path = shutil.which(program)
    roots = [Path(program_path).resolve().parent.parent] if program_path else []
    folders = [root / name for root in roots for name in ("lib", "lib64", "lib/release")]
    folders += [Path(folder) for folder in search_folders if folder]
    folders += [folder for root in roots for folder in sorted(root.glob("lib/*-linux-gnu*"))]
    files = (folder / LIBRARIES[family] for folder in folders)
    return next((file for file in files if file.exists()), None)
