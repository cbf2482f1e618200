"""Links of a known bandwidth between the nodes of tests/cluster."""

import subprocess


def limit_links(cluster, megabits):
    """Let both ends of every node's cable pass so many Mbit/s; the login node's is the bridge."""
    for number, node in enumerate(cluster.nodes, 1):
        _limit_device(cluster.login, f"port{number}", megabits)
        _limit_device(node, "eth0", megabits)


def _limit_device(node, device, megabits):
    # With small bursts a token bucket gives less than it says.
    bucket = ("tbf", "rate", f"{megabits}mbit", "burst", "256kb", "limit", "20mb")
    _run_in_network(node, "tc", "qdisc", "replace", "dev", device, "root", *bucket)
    # Else TCP begins every step anew, and does not come to what the link can do.
    _run_in_network(node, "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0")


def remove_limits(cluster):
    """Take the limits away again."""
    for number, node in enumerate(cluster.nodes, 1):
        _run_in_network(cluster.login, "tc", "qdisc", "del", "dev", f"port{number}", "root")
        _run_in_network(node, "tc", "qdisc", "del", "dev", "eth0", "root")


def _run_in_network(node, *words):
    command = node.inside(*words, kinds=("--net",))
    subprocess.run(command, check=True, capture_output=True, timeout=30)
