"""Replies of ranks, as their workers would write them."""


def build_reply(rank, **measured):
    """Return the reply of this rank, with these fields of its measurement."""
    measurement = {
        **dict.fromkeys(("startup_seconds", "build_seconds"), 1.0 + rank),
        **{"first_step_seconds": 3.0, "wall_seconds": 9.0, "images": 8, "peak_rss_bytes": 100},
        **{
            "warmup_seconds": [],
            "step_seconds": [1.0, 2.0 - rank],
            "losses": [2.0, 4.0 + 2 * rank],
        },
        **{"phases": {"input_seconds": 0.5 * rank}, "energy_joules": None, "window": 1},
        **measured,
    }
    observed = {"threads": 1, "cpus": 0.9, "affinity": [rank], "kernel": "plain", "pools": {"a": 1}}
    return {
        "status": "ok",
        "used": {"here": 2.0},
        "used_on_kernel": {"one": 2.0},
        "measurement": measurement,
        "learning": None,
        "canary": {"loss": 2.3},
        "observed": observed,
    }
