"""xfbench in ReFrame: one test per framework and network; its figure is images per second.

The test fails if a launch fails, if the network is not verified, or if the figure is below the
system's reference in `references.json`.
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
from reframe.core.logging import getlogger

FRAMEWORKS = os.environ.get("FRAMEWORKS", "caffe,mxnet,tensorflow,torch").split(",")
WORKLOADS = os.environ.get("WORKLOADS", "lenet,convnet").split(",")
# Interpreters of the frameworks, or scripts that load a module and start one (see
# docs/how-to/compare-builds.md). Empty: xfbench's own environments.
BUILDS = os.environ.get("BUILDS", "").split(",")


@rfm.simple_test
class XfbenchTest(rfm.RunOnlyRegressionTest):
    """A test of one cell. `-S` sets a variable: `-S XfbenchTest.launches=10`."""

    descr = "images per second of training, measured in fresh processes"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "xfbench"
    framework = parameter(FRAMEWORKS)
    workload = parameter(WORKLOADS)
    build = parameter(BUILDS)
    gpus = variable(int, value=0)  # one rank for each; the partition needs the resource `gpu`
    threads = variable(int, value=os.cpu_count() or 1)
    launches = variable(int, value=5)
    more = variable(str, value="")  # further options of `xfbench run`
    references = variable(str, value=str(Path(__file__).with_name("references.json")))
    tolerance = variable(float, value=0.05)
    results = "results"  # in the test's folder, so that each run measures again
    time_limit = "1h"

    @run_after("init")
    def set_command(self):
        """Set the commands; the exit status is that of `xfbench run`."""
        self.num_cpus_per_task = self.threads * max(1, self.gpus)
        if self.gpus:
            self.extra_resources = {"gpu": {"num_gpus_per_node": self.gpus}}
        self.executable_opts = [
            *("run", "--framework", self.framework, "--workload", self.workload),
            *("--threads", str(self.threads), "--launches", str(self.launches)),
            *(("--python", f"{self.framework}={self.build}") if self.build else ()),
            *(("--device", "cuda") if self.gpus else ()),
            *(("--ranks", str(self.gpus), "--scaling", "weak") if self.gpus > 1 else ()),
            *self.more.split(),
            *("--results", self.results, "--json"),
        ]
        self.postrun_cmds = [
            "status=$?",
            f"xfbench leaderboard --results {self.results} --json > leaderboard.json",
            "exit $status",
        ]
        self.keep_files = ["leaderboard.json", self.results]

    @run_before("performance")
    def set_reference(self):
        """Set the reference of this system for the cell, or warn that there is none."""
        [table] = self.read_json("leaderboard.json")["tables"]
        if not table["rows"]:
            return
        [row] = table["rows"]
        system = self.current_partition.fullname
        references = json.loads(Path(self.references).read_text())
        value = references.get(system, {}).get(row["key"])
        if value:
            limits = (value, -self.tolerance, None, "images/s")
            self.reference = {system: {"images_per_second": limits}}
        else:
            getlogger().warning(f"{self.references} has no {row['key']!r} of {system}")

    @sanity_function
    def assert_launches_ok_and_verified(self):
        """Check that all requested launches are ok and that the leaderboard ranks the cell."""
        records = self.read_json(self.stdout)["records"]
        [table] = self.read_json("leaderboard.json")["tables"]
        reasons = [row["reason"] for row in (*records, *table["unranked"]) if row["reason"]]
        return sn.all(
            [
                sn.assert_eq(reasons, [], msg=f"xfbench: {reasons}"),
                sn.assert_eq([record["status"] for record in records], ["ok"] * self.launches),
                sn.assert_eq(self.job.exitcode, 0),
            ]
        )

    @performance_function("images/s")
    def images_per_second(self):
        """Return the median over launches."""
        [row] = self.read_json("leaderboard.json")["tables"][0]["rows"]
        return row["images_per_second"]["value"]

    def read_json(self, name):
        """Return the content of a JSON file in the test's folder."""
        return json.loads(Path(self.stagedir, str(name)).read_text())
