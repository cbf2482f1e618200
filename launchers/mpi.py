"""The MPI launcher: it uses Open MPI, MPICH, Intel MPI or a site's own start command.

The launcher turns off MPI's own pinning. MPI may pin all threads of a rank to one core, which slows
training without an error. Only xfbench's worker sets the affinity.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from xfbench.base import tool_output
from xfbench.base.errors import UnavailableError
from xfbench.base.processes import Command, CommandError, output
from xfbench.launchers.resources import Resources, wrap_in_start_and_env_commands

# File name of the MPI library by family.
LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12"}
# Family by a line of --version. Intel MPI derives from MPICH, IBM Spectrum MPI from Open MPI.
_LINE_BY_FAMILY = {
    "openmpi": r"\S+ \((Open MPI|OpenRTE|PRR?TE|IBM Spectrum MPI)\).*|"
    r"(Open MPI|OpenRTE|PRR?TE)\W.*\d.*",
    "mpich": r"HYDRA build details.*|Intel\(R\) MPI Library.*",
}
_UNBOUND = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # Open MPI refuses to run as root, and containers often run as root.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def build_commands(
    command: Command, resources: Resources, program: str = "mpirun", family: str = "openmpi"
) -> list[Command]:
    """Return a list of one command, which starts all ranks with `program`.

    `family` is the MPI family of `program`: "openmpi" or "mpich".
    """
    start_words = (
        openmpi_start_words(program, resources)
        if family == "openmpi"
        else mpich_start_words(program, resources)
    )
    start_command = wrap_in_start_and_env_commands(start_words, command, resources)
    return [start_command.with_environment(_UNBOUND) if family == "openmpi" else start_command]


def openmpi_start_words(program: str, resources: Resources) -> tuple[str, ...]:
    """Return `program` and the Open MPI options that put equally many ranks on each node."""
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
    """Return `program` and the MPICH options that put equally many ranks on each node.

    Intel MPI accepts the same options.
    """
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


def build_commands_with_site_start(
    command: Command, resources: Resources, site_words: Sequence[str]
) -> list[Command]:
    """Return a list of one command, which starts all ranks with a site's own start command.

    `site_words` are that start command (such as ibrun or jsrun) and its arguments. They may contain
    the placeholders of `Resources.fill_placeholders`.
    """
    return [
        wrap_in_start_and_env_commands(
            (*resources.fill_placeholders(site_words), *resources.options), command, resources
        )
    ]


def detect_family(program: str) -> str:
    """Return the MPI family of `program`: "openmpi" or "mpich".

    Raises UnavailableError if `program` is not on the PATH, or is not a supported MPI.
    """
    if not shutil.which(program):
        raise UnavailableError(
            f"{program} is not on the PATH: load a module with an MPI, install Open MPI or "
            "MPICH, or use --launcher local"
        )
    failure = None
    try:  # old versions of Open MPI print their version to standard error
        version_text = output(["sh", "-c", 'exec "$0" --version 2>&1', program], timeout=60)
    except CommandError as error:
        version_text, failure = error.output, error
    families = [
        family
        for family, form in _LINE_BY_FAMILY.items()
        if tool_output.find_matching_lines(version_text, form)
    ]
    if failure and not families:
        text = str(failure).removeprefix("sh failed: ")
        raise UnavailableError(f"{program} --version failed: {text}") from failure
    if len(families) != 1:
        raise UnavailableError(
            f"{program} is not Open MPI, MPICH or Intel MPI: it printed "
            f"{tool_output.quote_output(version_text)}; load a module with one of them, or set "
            "the start command in a site file (start)"
        )
    return families[0]


def find_library(program: str, family: str, search_folders: Sequence[str] = ()) -> Path | None:
    """Return the file of the MPI library that `program` uses, or None if it is not found.

    The function looks in the library folders next to `program`, and in `search_folders`.
    """
    program_path = shutil.which(program)
    roots = [Path(program_path).resolve().parent.parent] if program_path else []
    folders = [root / name for root in roots for name in ("lib", "lib64", "lib/release")]
    folders += [Path(folder) for folder in search_folders if folder]
    folders += [folder for root in roots for folder in sorted(root.glob("lib/*-linux-gnu*"))]
    files = (folder / LIBRARIES[family] for folder in folders)
    return next((file for file in files if file.exists()), None)
