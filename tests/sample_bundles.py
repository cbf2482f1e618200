"""Plans for bundles, and runs of bundles as on another machine."""

import os
import subprocess

from xfbench.model.plan import Plan
from xfbench.planning import experiment
from xfbench.planning.scheduling import launch_order


def build_plan(framework, time_limit=300, **settings):
    chosen = {"workload": ["lenet"], "steps": 2, "launches": 1, "data": "synthetic", **settings}
    matrix = experiment.build_matrix(framework=[framework], **chosen)
    cells = experiment.expand_matrices([matrix], {framework: "python3"})
    return Plan(
        requests=tuple(launch_order(cells)),
        protocols=tuple(cells),
        pythons={},
        verify=settings.get("launches") is None,
        strict=False,
        time_limit=time_limit,
    )


def run_bundle(folder, *interpreters, **variables):
    """Run the bundle as on another machine: the environment has no variable of this session."""
    return subprocess.run(
        ["sh", str(folder / "run.sh"), *interpreters],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
