"""Builds the commands that start a request's ranks, and selects the ranks' MPI library."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from xfbench.base.errors import UnavailableError
from xfbench.base.process_variables import Purpose, select_variables
from xfbench.base.processes import Command
from xfbench.environments.environment import Environment
from xfbench.host import sites
from xfbench.host.sites import Site
from xfbench.launchers import local, mpi, slurm
from xfbench.launchers.resources import Resources
from xfbench.model.adapter import Adapter
from xfbench.model.request import Request

_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")


@dataclass(frozen=True)
class Start:
    """The commands that start all ranks.

    `watched` is true if a watch must detect failed ranks, because the ranks are not children of
    this process.
    """

    commands: list[Command]
    watched: bool

    def with_variable(self, name: str, value: str) -> Start:
        """Return a copy that sets the variable `name` to `value` for every rank."""
        if not self.watched:
            return Start(
                [command.with_environment({name: value}) for command in self.commands], False
            )
        commands = []
        for command in self.commands:
            place = command.argv.index("env") + 1
            while command.argv[place] == "-u":
                place += 2
            argv = (*command.argv[:place], f"{name}={value}", *command.argv[place:])
            commands.append(Command(argv, command.environment, command.cwd))
        return Start(commands, True)


def build_start(
    base: Command, request: Request, framework_adapter: Adapter, framework_environment: Environment
) -> Start:
    """Return the commands that start the request's ranks. Each rank runs `base`.

    Raises UnavailableError if no MPI library or launcher is found.
    """
    site = sites.load_site(request.site)
    base = base.with_environment(_build_network_variables(request, site))
    resources = Resources(
        ranks=request.ranks,
        nodes=request.nodes,
        threads=request.threads,
        hosts=site.hosts,
        options=site.start_options,
        variables=select_variables(Purpose.START),
    )
    with_mpi = request.strategy == "mpi"
    bundled_mpi = _find_bundled_mpi_folder(framework_adapter, framework_environment)
    if request.launcher == "slurm":
        library = site.mpi_library or (bundled_mpi and str(bundled_mpi / "lib/libmpi.so.12")) or ""
        if with_mpi:
            base = _with_mpi_library(base, library, framework_adapter)
        if site.start:
            return Start(mpi.build_commands_with_site_start(base, resources, site.start), True)
        plugin = site.mpi_plugin if with_mpi else "none"
        return Start(slurm.build_commands(base, resources, plugin), True)
    if request.launcher == "mpi":
        return Start(_build_mpi_commands(base, resources, site, with_mpi, framework_adapter), True)
    if not with_mpi or request.ranks == 1:
        return Start(local.build_commands(base, resources), False)
    if bundled_mpi is None:
        raise UnavailableError(
            "strategy mpi on this machine needs an MPI library: use "
            f"{framework_adapter.title}'s managed environment, or --launcher mpi"
        )
    base = _with_mpi_library(base, str(bundled_mpi / "lib/libmpi.so.12"), framework_adapter)
    program = str(bundled_mpi / "bin/mpiexec")
    return Start(mpi.build_commands(base, resources, program, "mpich"), True)


def can_choose_node(request: Request) -> bool:
    """Return whether `build_start_on_node` can start a process on each node of the launch.

    It cannot with a site's own start command, or with mpirun if the site names no hosts. Nor can it
    with the worker of a revision, whose servers may take the driver's address for their own.
    """
    site = sites.load_site(request.site)
    if request.nodes == 1 or site.start or request.revision is not None:
        return False
    return request.launcher == "slurm" or bool(site.hosts)


def build_start_on_node(helper: Command, request: Request, node: int) -> Command:
    """Return the command that starts `helper` on one node of the launch, counted from 0.

    The helper may use all cores that the ranks have on that node. Raises UnavailableError if there
    is no supported mpirun.
    """
    site = sites.load_site(request.site)
    helper = helper.with_environment(_build_network_variables(request, site))
    resources = Resources(
        ranks=1,
        threads=request.ranks // request.nodes * request.threads,
        hosts=site.hosts[node : node + 1],
        options=site.start_options,
        variables=select_variables(Purpose.START),
    )
    if request.launcher == "slurm":
        resources = replace(resources, options=(*site.start_options, f"--relative={node}"))
        [command] = slurm.build_commands(helper, resources)
    else:
        family = mpi.detect_family("mpirun")
        [command] = mpi.build_commands(helper, resources, family=family)
    return command


def _build_network_variables(request: Request, site: Site) -> dict[str, str]:
    """Return the variables of the ranks that say how they reach each other.

    - The user's settings of NCCL, if the ranks use GPUs.
    - The site's interface, for xfbench, NCCL ("=" stands for an exact name) and gloo.
    - The site's variables, which have precedence.
    """
    variables = {
        name: value
        for name, value in select_variables(Purpose.START).items()
        if name.startswith("NCCL_") and request.device == "cuda"
    }
    if site.interface:
        variables["XFBENCH_INTERFACE"] = site.interface
    if site.interface and (request.launcher == "slurm" or request.nodes > 1 or site.hosts):
        variables["NCCL_SOCKET_IFNAME"] = f"={site.interface}"
        variables["GLOO_SOCKET_IFNAME"] = site.interface
    return {**variables, **site.variables}


def _build_mpi_commands(
    base: Command, resources: Resources, site: Site, with_mpi: bool, framework_adapter: Adapter
) -> list[Command]:
    if site.start:
        if with_mpi:
            base = _with_mpi_library(base, site.mpi_library, framework_adapter)
        return mpi.build_commands_with_site_start(base, resources, site.start)
    program = "mpirun"
    family = mpi.detect_family(program)
    if with_mpi:
        search = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_SYSTEM]
        library = site.mpi_library or str(mpi.find_library(program, family, search) or "")
        base = _with_mpi_library(base, library, framework_adapter)
    return mpi.build_commands(base, resources, program, family)


def _with_mpi_library(base: Command, library: str, framework_adapter: Adapter) -> Command:
    """Return `base` with variables that make mpi4py load `library`.

    Raises UnavailableError if `library` is empty.
    """
    if not library:
        raise UnavailableError(
            f"no MPI library was found for {framework_adapter.title}'s strategy mpi: set "
            "mpi_library in the site file"
        )
    return base.with_environment({"MPI4PY_LIBMPI": library})


def _find_bundled_mpi_folder(
    framework_adapter: Adapter, framework_environment: Environment
) -> Path | None:
    """Return the folder of MPICH in the framework's environment; None if there is no MPICH."""
    if not framework_adapter.mpi:
        return None
    folder = Path(framework_adapter.mpi.replace("{prefix}", str(framework_environment.prefix)))
    return folder if (folder / "bin/mpiexec").is_file() else None
