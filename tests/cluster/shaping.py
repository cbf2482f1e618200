"""Links of a known bandwidth between the nodes of tests/cluster."""

import subprocess


def shape(cluster, megabits):
    """Let both ends of every node's cable pass so many Mbit/s; the login node's is the bridge."""
    for number, node in enumerate(cluster.nodes, 1):
        _at_most(cluster.login, f"port{number}", megabits)
        _at_most(node, "eth0", megabits)


def _at_most(node, device, megabits):
    # With small bursts a token bucket gives less than it says.
    bucket = ("tbf", "rate", f"{megabits}mbit", "burst", "256kb", "limit", "20mb")
    _do(node, "tc", "qdisc", "replace", "dev", device, "root", *bucket)
    # Else TCP begins every step anew, and does not come to what the link can do.
    _do(node, "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0")


def unshape(cluster):
    """Take the limits away again."""
    for number, node in enumerate(cluster.nodes, 1):
        _do(cluster.login, "tc", "qdisc", "del", "dev", f"port{number}", "root")
        _do(node, "tc", "qdisc", "del", "dev", "eth0", "root")


def _do(node, *words):
    command = node.inside(*words, kinds=("--net",))
    subprocess.run(command, check=True, capture_output=True, timeout=30)
