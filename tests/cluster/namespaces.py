"""Nodes as namespaces of this machine, with their own network, name, processes and mounts.

A bridge in the first node's network connects them, so this machine's network is unchanged.
Processes in a node end with it, and all nodes end with the process that made them.
"""

import subprocess
import tempfile
from pathlib import Path

TITLE = "namespaces of this machine, with a network between them"
# A command behind these words is killed when the process that started it ends.
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
KINDS = ("--net", "--uts", "--ipc", "--pid", "--mount")


def unavailable_reason():
    """Return why nodes or their network cannot be made here; None if they can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            for node in connect_nodes(["one", "two"], Path(folder)):
                node.end()
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        except RuntimeError as error:
            return str(error)
        except subprocess.CalledProcessError as error:
            return error.stderr.decode(errors="replace").strip()
    return None


class Node:
    """A separate host except for its kernel and files; `folder`/local is its own disk.

    `settings` is its entry in slurm.conf.
    """

    def __init__(self, name, address, folder, hosts):
        self.name, self.address = name, address
        self.settings = f"SlurmctldHost={name}" if name == "login" else f"NodeName={name}"
        script = (
            "mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm && "
            'mount --bind "$1" /etc/hosts && mount -t tmpfs tmpfs "$2" && hostname "$3" && '
            "ip link set lo up && echo up && exec sleep 86400"
        )
        self.holder = subprocess.Popen(
            [
                *(*WITH_PARENT, "unshare", *KINDS, "--fork", "--kill-child", "--mount-proc"),
                *("sh", "-c", script, "node", str(hosts), str(folder / "local"), name),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        first_line = self.holder.stdout.readline()
        if first_line != b"up\n":
            raise RuntimeError(
                f"{name} did not come up: {first_line.decode(errors='replace').strip()}"
            )
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        self.pid = int(children.read_text().split()[0])

    def inside(self, *argv, kinds=KINDS):
        """Return the command that runs `argv` in this node, in the current folder."""
        enter_command = ("nsenter", f"--target={self.pid}", *kinds, f"--wd={Path.cwd()}")
        return [*enter_command, "--", *map(str, argv)]

    def network(self, *words):
        """Run ip(8) in this node's network; process ids are those of this machine."""
        command = self.inside("ip", *words, kinds=("--net",))
        subprocess.run(command, check=True, capture_output=True, timeout=30)

    def start(self, *argv, log, environment):
        """Start a command in the background; it ends with this node."""
        subprocess.Popen(
            [*WITH_PARENT, *self.inside(*argv)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )

    def end(self):
        """End the node as a power failure would."""
        self.holder.kill()
        self.holder.wait(timeout=30)


def connect_nodes(names, folder):
    """Return nodes with these names on one network; the first node has the bridge."""
    (folder / "local").mkdir()
    hosts = folder / "hosts"
    addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    hosts.write_text("\n".join(lines) + "\n")
    nodes = [Node(name, address, folder, hosts) for name, address in addresses.items()]
    first = nodes[0]
    first.network("link", "add", "bridge", "type", "bridge")
    first.network("addr", "add", f"{first.address}/24", "dev", "bridge")
    first.network("link", "set", "bridge", "up")
    for number, node in enumerate(nodes[1:], 1):
        connect_to_bridge(first, node, number)
    return nodes


def connect_to_bridge(first, node, number):
    """Connect a node to the bridge in the first node."""
    peer = ("peer", "name", "eth0", "netns", str(node.pid))
    first.network("link", "add", f"port{number}", "type", "veth", *peer)
    first.network("link", "set", f"port{number}", "master", "bridge", "up")
    node.network("addr", "add", f"{node.address}/24", "dev", "eth0")
    node.network("link", "set", "eth0", "up")
