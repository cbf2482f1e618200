"""Bandwidth limits for the links between nodes of a test cluster."""

import subprocess


def limit_links(cluster, megabits):
    """Limit both ends of every node's link, in Mbit/s; the login node has the bridge."""
    for number, node in enumerate(cluster.nodes, 1):
        _limit_device(cluster.login, f"port{number}", megabits)
        _limit_device(node, "eth0", megabits)


def _limit_device(node, device, megabits):
    # With small bursts a token bucket passes less than its rate.
    bucket = ("tbf", "rate", f"{megabits}mbit", "burst", "256kb", "limit", "20mb")
    _run_in_network(node, "tc", "qdisc", "replace", "dev", device, "root", *bucket)
    # Otherwise TCP restarts slowly in every step and never reaches the rate of the link.
    _run_in_network(node, "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0")


def remove_limits(cluster):
    """Remove the limits."""
    for number, node in enumerate(cluster.nodes, 1):
        _run_in_network(cluster.login, "tc", "qdisc", "del", "dev", f"port{number}", "root")
        _run_in_network(node, "tc", "qdisc", "del", "dev", "eth0", "root")


def _run_in_network(node, *words):
    command = node.inside(*words, kinds=("--net",))
    subprocess.run(command, check=True, capture_output=True, timeout=30)
