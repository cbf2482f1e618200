"""Nodes of a cluster as processes of this host, for users who cannot make namespaces.

All nodes have this host's name, network and files, and differ only in their ports. There is no
network between them that could be slow or fail.
"""

import os
import platform
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil

TITLE = "processes of this host, with no network between them"
KEEPER = Path(__file__).with_name("keeper.py")


def unavailable_reason():
    """Return why nodes cannot be made here; None if they can."""
    return None if _list_addresses() else "this host has no IPv4 address but the loopback's"


def _list_addresses():
    return [
        interface_address.address
        for interface in psutil.net_if_addrs().values()
        for interface_address in interface
        if interface_address.family is socket.AF_INET
        and not interface_address.address.startswith("127.")
    ]


class Node:
    """A node whose processes end with it; `settings` is its entry in slurm.conf."""

    def __init__(self, name, port):
        self.name, self.address = name, _list_addresses()[0]
        host = platform.node().partition(".")[0]
        if name == "login":
            self.settings = f"SlurmctldHost={host}({self.address})\nSlurmctldPort={port}"
        else:
            node_settings = f"NodeHostname={host} NodeAddr={self.address} Port={port}"
            self.settings = f"NodeName={name} {node_settings}"
        self.processes = []

    def inside(self, *argv):
        """Return the command that runs `argv` and kills its descendants at the end."""
        return [sys.executable, "-P", str(KEEPER), str(os.getpid()), *map(str, argv)]

    def start(self, *argv, log, environment):
        """Start a command in the background; it ends with this node."""
        process = subprocess.Popen(
            self.inside(*argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        self.processes.append(process)

    def end(self):
        """End all processes of this node."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=30)


def connect_nodes(names, folder):
    """Return nodes with these names, each with a free port."""
    (folder / "local").mkdir()
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in names]
        for probe in probes:
            probe.bind(("", 0))
        return [
            Node(name, probe.getsockname()[1]) for name, probe in zip(names, probes, strict=True)
        ]
