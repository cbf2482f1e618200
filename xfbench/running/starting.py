"""Decides what starts a request's ranks: which launcher's words, and which MPI they load."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from xfbench.adapter import Adapter
from xfbench.base.errors import UnavailableError
from xfbench.base.processes import Command
from xfbench.environments.environment import Environment
from xfbench.host import sites
from xfbench.host.sites import Site
from xfbench.launchers import local, mpi, slurm
from xfbench.launchers.resources import Resources
from xfbench.request import Request

# What a start command may see: how to find its peers and libraries, and nothing personal.
_PREFIXES = (
    *("SLURM_", "OMPI_", "PRTE_", "PMIX_", "PMI_", "MPICH_", "HYDRA_", "I_MPI_", "MPIR_"),
    *("UCX_", "FI_", "NCCL_", "TACC_", "LSB_", "LSF_", "MUNGE", "CRAY_", "PALS_"),
)
_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|JWT|API_?KEY")  # SLURM_JWT, for one
_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")


@dataclass(frozen=True)
class Start:
    """The commands that start all ranks; `watched` if ranks are no children of ours."""

    commands: list[Command]
    watched: bool

    def with_variable(self, name: str, value: str) -> Start:
        """The same, every rank told one thing more."""
        if not self.watched:
            return Start([one.with_environment({name: value}) for one in self.commands], False)
        again = []
        for one in self.commands:
            place = one.argv.index("env") + 1
            while one.argv[place] == "-u":
                place += 2
            argv = (*one.argv[:place], f"{name}={value}", *one.argv[place:])
            again.append(Command(argv, one.environment, one.cwd))
        return Start(again, True)


def start(base: Command, request: Request, described: Adapter, found: Environment) -> Start:
    """What starts the request's ranks, each of which is to run `base`.

    Raises UnavailableError, with what to do, where that is not to be had.
    """
    site = sites.load(request.site)
    own = {"XFBENCH_INTERFACE": site.interface} if site.interface else {}
    base = base.with_environment({**site.variables, **own})
    resources = Resources(
        ranks=request.ranks,
        nodes=request.nodes,
        threads=request.threads,
        hosts=site.hosts,
        options=site.start_options,
        variables=inherited(os.environ),
    )
    with_mpi = request.strategy == "mpi"
    bundled = _bundled(described, found)
    if request.launcher == "slurm":
        library = site.mpi_library or (bundled and str(bundled / "lib/libmpi.so.12")) or ""
        if with_mpi:
            base = _loading(base, library, described)
        if site.start:
            return Start(mpi.build_site_commands(base, resources, site.start), True)
        plugin = site.mpi_plugin if with_mpi else "none"
        return Start(slurm.build_commands(base, resources, plugin), True)
    if request.launcher == "mpi":
        return Start(_under_mpi(base, resources, site, with_mpi, described), True)
    if not with_mpi or request.ranks == 1:
        return Start(local.build_commands(base, resources), False)
    if bundled is None:
        raise UnavailableError(
            f"strategy mpi on this machine needs {described.title}'s managed environment, "
            "which has an MPI, or --launcher mpi"
        )
    base = _loading(base, str(bundled / "lib/libmpi.so.12"), described)
    program = str(bundled / "bin/mpiexec")
    return Start(mpi.build_commands(base, resources, program, "mpich"), True)


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of `variables` that what starts ranks is given."""
    return {
        name: value
        for name, value in variables.items()
        if name in _NAMES or (name.startswith(_PREFIXES) and not _SECRET.search(name))
    }


def _under_mpi(
    base: Command, resources: Resources, site: Site, with_mpi: bool, described: Adapter
) -> list[Command]:
    if site.start:
        if with_mpi:
            base = _loading(base, site.mpi_library, described)
        return mpi.build_site_commands(base, resources, site.start)
    program = "mpirun"
    family = mpi.detect_family(program)
    if with_mpi:
        search = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_SYSTEM]
        library = site.mpi_library or str(mpi.find_library(program, family, search) or "")
        base = _loading(base, library, described)
    return mpi.build_commands(base, resources, program, family)


def _loading(base: Command, library: str, described: Adapter) -> Command:
    """`base`, told which MPI library mpi4py is to load."""
    if not library:
        raise UnavailableError(
            f"no MPI library was found for {described.title}'s strategy mpi: name it as "
            "mpi_library in a site file"
        )
    return base.with_environment({"MPI4PY_LIBMPI": library})


def _bundled(described: Adapter, found: Environment) -> Path | None:
    """The folder of the MPICH that the framework's environment brings along."""
    if not described.mpi:
        return None
    folder = Path(described.mpi.replace("{prefix}", str(found.prefix)))
    return folder if (folder / "bin/mpiexec").is_file() else None
