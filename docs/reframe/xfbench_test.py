"""xfbench in ReFrame: each framework with each network is a test, its images per second the figure.

A launch that fails, and a network that is not proven equal, fails the test; so does a figure
below the system's reference in `references.json`.
"""

import json
import os
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)

FRAMEWORKS = os.environ.get("FRAMEWORKS", "caffe,mxnet,tensorflow,torch").split(",")
WORKLOADS = os.environ.get("WORKLOADS", "lenet,convnet").split(",")


@rfm.simple_test
class XfbenchTest(rfm.RunOnlyRegressionTest):
    """One cell. Every variable can be set from outside: `-S XfbenchTest.launches=10`."""

    descr = "images per second of training, over fresh processes"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "xfbench"
    framework = parameter(FRAMEWORKS)
    workload = parameter(WORKLOADS)
    threads = variable(int, value=os.cpu_count() or 1)
    steps = variable(int, value=20)
    launches = variable(int, value=5)
    more = variable(str, value="")  # further options of `xfbench run`
    references = variable(str, value=str(Path(__file__).with_name("references.json")))
    tolerance = variable(float, value=0.05)
    results = "results"  # in the test's own folder, so that each run measures anew
    time_limit = "1h"

    @run_after("init")
    def ask(self):
        """The cell's command; its status stays that of `run`."""
        self.num_cpus_per_task = self.threads
        self.executable_opts = [
            *("run", "--framework", self.framework, "--workload", self.workload),
            *("--threads", str(self.threads), "--steps", str(self.steps)),
            *("--launches", str(self.launches), *self.more.split()),
            *("--results", self.results, "--json"),
        ]
        self.postrun_cmds = [
            "status=$?",
            f"xfbench leaderboard --results {self.results} --json > leaderboard.json",
            "exit $status",
        ]
        self.keep_files = ["leaderboard.json", self.results]

    @run_before("performance")
    def expect(self):
        """What this system gave before, of the same cell."""
        system = self.current_partition.fullname
        known = json.loads(Path(self.references).read_text())
        value = known.get(system, {}).get(f"{self.framework} {self.workload}")
        if value:
            limits = (value, -self.tolerance, None, "images/s")
            self.reference = {system: {"images_per_second": limits}}

    @sanity_function
    def every_launch_is_ok_and_the_network_proven_equal(self):
        """All launches asked for, each ok; and the row has a rank."""
        records = self.read(self.stdout)["records"]
        [table] = self.read("leaderboard.json")["tables"]
        reasons = [one["reason"] for one in (*records, *table["unranked"]) if one["reason"]]
        return sn.all(
            [
                sn.assert_eq(reasons, [], msg=f"xfbench: {reasons}"),
                sn.assert_eq([one["status"] for one in records], ["ok"] * self.launches),
                sn.assert_eq(self.job.exitcode, 0),
            ]
        )

    @performance_function("images/s")
    def images_per_second(self):
        """The geometric mean over launches."""
        [row] = self.read("leaderboard.json")["tables"][0]["rows"]
        return row["images_per_second"]["value"]

    def read(self, name):
        """A file of the test's folder, as JSON."""
        return json.loads(Path(self.stagedir, str(name)).read_text())
