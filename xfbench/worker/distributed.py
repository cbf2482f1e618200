"""The rank, address and group of this process.

The launcher's environment variables give the rank and the number of ranks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `protocol` needs NumPy, and a missing NumPy must be reported first
    from xfbench.worker.protocol import Group

_PAUSE_SECONDS, _MAX_POLLS = 0.01, 12000
_MAX_POLLS_FOR_NUMBER = 360000  # an hour: ranks of asynchronous strategies may be far apart
_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # netdevice(7)
# Under mpirun in a batch job, Slurm's variables are those of the batch step, so MPI's come first.
_RANK_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("XFBENCH_RANK", "XFBENCH_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def rank_and_size() -> tuple[int, int]:
    """Return (rank of this process, number of ranks). (0, 1) if no launcher variable gives them."""
    for named, counted in _RANK_VARIABLES:
        if named in os.environ and counted in os.environ:
            return int(os.environ[named]), int(os.environ[counted])
    return 0, 1


def path_for_rank(path: Path, rank: int) -> Path:
    """Return `path` with the rank in its name: reply.json for rank 0, reply.1.json for rank 1."""
    return path.with_name(f"{path.stem}.{rank}{path.suffix}") if rank else path


def host_address(remote: bool) -> str:
    """Return this host's IPv4 address. If `remote` is true, other nodes must be able to reach it.

    - If `remote` is false, the result is the loopback address.
    - If `remote` is true and `XFBENCH_INTERFACE` is set, the result is the address of that network
      interface. A site names its fast network there.
    - Otherwise, the addresses of the host name and of all interfaces are tried in this order. The
      result is the first that is not a loopback address, or else the loopback address. An address
      of the host name that this host does not have is left out: name services can be wrong.

    Raises RuntimeError if the interface in `XFBENCH_INTERFACE` has no address.
    """
    if not remote:
        return _LOOPBACK
    chosen = os.environ.get("XFBENCH_INTERFACE")
    if chosen:
        try:
            return _address_of_interface(chosen)
        except OSError as error:
            raise RuntimeError(f"network interface {chosen}: {error.strerror}") from error
    candidates = [_resolve_host_name_or_loopback(socket.gethostname())]
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):  # the interface has no address
            candidates.append(_address_of_interface(name))
    return next(
        (candidate for candidate in candidates if not candidate.startswith("127.")), _LOOPBACK
    )


def _resolve_host_name_or_loopback(name: str) -> str:
    try:
        address = socket.gethostbyname(name)
        with socket.socket() as probe:
            probe.bind((address, 0))
        return address
    except OSError:  # unknown name, or the address of another machine
        return _LOOPBACK


def _address_of_interface(name: str) -> str:
    """Return the interface's IPv4 address. Raises OSError if it has none or does not exist."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        interface_request = struct.pack("256s", name.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, interface_request)[20:24])


def exchange_rank_addresses(group: Group) -> list[str]:
    """Return an address "host:port" for each rank to listen on, in rank order.

    Every rank of `group` must call this function. Raises RuntimeError if a rank does not register
    within two minutes.
    """
    names = [str(rank) for rank in range(group.size)]
    return exchange_addresses(
        group.rendezvous_path, str(group.rank), names, host_address(group.multi_node)
    )


def exchange_addresses(
    rendezvous_path: str, process_name: str, all_process_names: list[str], host_of_process: str
) -> list[str]:
    """Return the address "host:port" of each process in `all_process_names`, in order.

    Every process must call this function. Each process chooses a free port on its host and writes
    its address to the file `rendezvous_path`.`process_name`. All processes must see this file.

    - `process_name`: the name of this process
    - `host_of_process`: the address of this process's host

    Raises RuntimeError if an address is missing after two minutes.
    """
    with socket.socket() as probe:
        probe.bind((host_of_process, 0))
        own_address = f"{host_of_process}:{probe.getsockname()[1]}"
    paths = [Path(f"{rendezvous_path}.{rank_name}") for rank_name in all_process_names]
    _write_at_once(Path(f"{rendezvous_path}.{process_name}"), own_address)
    for _ in range(_MAX_POLLS):
        if all(path.exists() for path in paths):
            return [path.read_text(encoding="utf-8") for path in paths]
        time.sleep(_PAUSE_SECONDS)
    missing = [rank_name for rank_name, path in zip(all_process_names, paths) if not path.exists()]
    raise RuntimeError(f"ranks {', '.join(missing)} did not register within two minutes")


def _write_at_once(path: Path, text: str) -> None:
    """Write a file such that no other process sees a part of it."""
    partial = Path(f"{path}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def share_number_of_first_rank(group: Group, name: str, number: int) -> int:
    """Return the first rank's `number`, on every rank. Every rank must call this function.

    The first rank writes its number to the file `rendezvous_path`.`name`. No two calls of a launch
    may have the same name.

    Raises RuntimeError if the number is missing after an hour.
    """
    path = Path(f"{group.rendezvous_path}.{name}")
    if group.rank == 0:
        _write_at_once(path, str(number))
        return number
    for _ in range(_MAX_POLLS_FOR_NUMBER):
        if path.exists():
            return int(path.read_bytes())
        time.sleep(_PAUSE_SECONDS)
    raise RuntimeError(f"the first rank did not say within an hour how long to train ({name})")


def build_group(
    request: dict[str, Any],
    multi_node: bool = False,
    strategy_options: dict[str, Any] | None = None,
) -> Group:
    """Return the group that `request` describes.

    - `multi_node`: whether ranks may be on other nodes
    - `strategy_options`: the values of the strategy's options by name; None: no options

    Raises RuntimeError if another number of ranks was started than requested.
    """
    from xfbench.worker.protocol import Group

    rank, size = rank_and_size()
    if size != request["ranks"]:
        raise RuntimeError(f"{request['ranks']} ranks were requested, but {size} were started")
    meeting = str(Path("meeting").absolute())
    return Group(rank, size, request["strategy"], meeting, multi_node, strategy_options or {})


def replace_address_placeholders_in_env(remote: bool) -> None:
    """Replace "{address}" in all environment variables of this process with this host's address.

    The address is the result of `host_address(remote)`.
    """
    for name, value in os.environ.items():
        if "{address}" in value:
            os.environ[name] = value.replace("{address}", host_address(remote))
