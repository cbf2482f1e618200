"""Which of the ranks this process is: told by whatever started it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it needs NumPy, and an interpreter without it is to be told so
    from xfbench.worker.protocol import Group

_PAUSE_SECONDS, _PATIENCE = 0.01, 12000
_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # netdevice(7)
# Under mpirun inside a batch job Slurm's variables are those of the batch step: MPI's come first.
_TOLD_BY = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("XFBENCH_RANK", "XFBENCH_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def place() -> tuple[int, int]:
    """This process's rank, and how many there are; (0, 1) where nobody says."""
    for named, counted in _TOLD_BY:
        if named in os.environ and counted in os.environ:
            return int(os.environ[named]), int(os.environ[counted])
    return 0, 1


def of_rank(path: Path, rank: int) -> Path:
    """Where a rank writes what the first one writes to `path`: reply.json, reply.1.json."""
    return path.with_name(f"{path.stem}.{rank}{path.suffix}") if rank else path


def address(remote: bool) -> str:
    """This host's IPv4 address: the loopback's, or as other nodes reach it.

    That is the one of the interface which `XFBENCH_INTERFACE` names (a site's fast network),
    else what the host's name stands for, else the first interface's; on a machine without any,
    the loopback's. Raises RuntimeError where the named interface has none.
    """
    if not remote:
        return _LOOPBACK
    chosen = os.environ.get("XFBENCH_INTERFACE")
    if chosen:
        try:
            return _of_interface(chosen)
        except OSError as error:
            raise RuntimeError(f"network interface {chosen}: {error.strerror}") from error
    found = [_of_name(socket.gethostname())]
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):  # it has none
            found.append(_of_interface(name))
    return next((one for one in found if not one.startswith("127.")), _LOOPBACK)


def _of_name(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return _LOOPBACK


def _of_interface(name: str) -> str:
    """Raises OSError where the interface is not there or has no IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("256s", name.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24])


def addresses(group: Group) -> list[str]:
    """An address for each rank to listen on, "host:port", in order: for frameworks that ask.

    Raises RuntimeError where they do not all come within two minutes.
    """
    names = [str(rank) for rank in range(group.size)]
    return meet(group.rendezvous_path, str(group.rank), names, address(group.multi_node))


def meet(meeting: str, name: str, names: list[str], host: str) -> list[str]:
    """An address for each of `names`, in order, of which this process is the one called `name`.

    Each chooses its own on its `host` and tells the others through the meeting place, a file
    that all see. Raises RuntimeError where they do not all come within two minutes.
    """
    with socket.socket() as probe:
        probe.bind((host, 0))
        own = f"{host}:{probe.getsockname()[1]}"
    told = [Path(f"{meeting}.{one}") for one in names]
    partial = Path(f"{meeting}.{name}.partial")
    partial.write_text(own)
    partial.replace(f"{meeting}.{name}")
    for _ in range(_PATIENCE):
        if all(path.exists() for path in told):
            return [path.read_text() for path in told]
        time.sleep(_PAUSE_SECONDS)
    missing = [one for one, path in zip(names, told) if not path.exists()]
    raise RuntimeError(f"ranks {', '.join(missing)} did not come to the meeting in two minutes")


def group(
    request: dict[str, Any], remote: bool = False, options: dict[str, Any] | None = None
) -> Group:
    """The group that `request` asks for, with these of its strategy's options.

    Raises RuntimeError where another one was started.
    """
    from xfbench.worker.protocol import Group

    rank, size = place()
    if size != request["ranks"]:
        raise RuntimeError(f"{request['ranks']} ranks were asked for, and {size} were started")
    meeting = str(Path("meeting").absolute())
    return Group(rank, size, request["strategy"], meeting, remote, options or {})


def name_addresses(remote: bool) -> None:
    """Put this host's address where the environment says "{address}"."""
    for name, value in os.environ.items():
        if "{address}" in value:
            os.environ[name] = value.replace("{address}", address(remote))
