"""A real Slurm cluster on this machine: slurmctld, slurmd, munge and PMIx.

Its nodes are namespaces of this machine, or processes if namespaces are not allowed.
"""

import os
import secrets
import subprocess
import tempfile
import time
from pathlib import Path

from tests import debian
from tests.cluster import namespaces, processes

PACKAGES = [
    *("slurmd", "slurmctld", "slurm-client", "munge", "libpmix-dev", "openmpi-bin", "lmod"),
    *("iproute2", "util-linux"),
]
PROGRAMS = ["slurmd", "slurmctld", "srun", "munged", "mpirun", "ip", "unshare", "nsenter"]
CONFIGURATION = """
ClusterName=xfbench
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdTimeout=15
KillWait=2
ReturnToService=2
MinJobAge=3600
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
{login}
NodeName=DEFAULT CPUs={cpus} RealMemory=64000 State=UNKNOWN
{nodes}
PartitionName=normal Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=small Nodes=node1 MaxTime=10 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 MaxTime=60 State=UP
"""


def missing_reason():
    """Return why Slurm or one of its dependencies is missing; None if all are installed."""
    return debian.install_missing(PROGRAMS, PACKAGES)


def choose_node_module():
    """Return the module that makes nodes, `namespaces` or else `processes`, and its description.

    Return None and the reason if neither can make nodes.
    """
    reason = missing_reason()
    if reason:
        return None, reason
    reason = namespaces.unavailable_reason()
    if not reason:
        return namespaces, namespaces.TITLE
    if processes.unavailable_reason():
        return None, f"{reason}; {processes.unavailable_reason()}"
    return processes, f"{processes.TITLE} ({reason})"


def _start_sweeper(folder):
    """Start a process that removes the folder when its input or this process ends."""
    script = 'read -r _; for _ in $(seq 300); do rm -rf "$1" && exit; sleep 0.1; done'
    return subprocess.Popen(
        ["sh", "-c", script, "sweeper", str(folder)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class Cluster:
    """A login node and `count` nodes with Slurm; `end` stops them.

    `node_module` makes the nodes: the module `namespaces` or `processes`.
    """

    def __init__(self, node_module=namespaces, count=4, cpus=2):
        # A short path, because the paths of sockets are limited in length.
        self.folder = Path(tempfile.mkdtemp(prefix="xfc-", dir="/tmp"))
        self._sweeper = _start_sweeper(self.folder)
        names = ["login", *(f"node{number}" for number in range(1, count + 1))]
        self.login, *self.nodes = node_module.connect_nodes(names, self.folder)
        self.log = (self.folder / "daemons.log").open("wb")
        try:
            self._configure(cpus)
            self._come_up()
        except BaseException:
            self.end()
            raise

    def _come_up(self):
        self._start(
            self.login,
            *("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket"),
            *(f"--key-file={self.folder}/munge.key", f"--log-file={self.folder}/munged.log"),
            *(f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munge.seed"),
        )
        self._await((self.folder / "munge.socket").exists, "munged")
        self._start(self.login, "slurmctld", "-D")
        for node in self.nodes:
            self._start(node, "slurmd", "-D", "-N", node.name)
        self._await(lambda: self.idle() == len(self.nodes), "Slurm")

    @property
    def environment(self):
        """The environment of commands on nodes: this process's variables and Slurm's."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": debian.PATH}

    def run(self, *argv, timeout=120, **variables):
        """Run a command on the login node; return the completed process with output as text."""
        return subprocess.run(
            self.login.inside(*argv),
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def popen(self, *argv, **variables):
        """Start a command on the login node, with output as text through pipes.

        It receives interrupts even if this process ignores its own.
        """
        with_interrupt = ("env", "--default-signal=INT")
        return subprocess.Popen(
            [*namespaces.WITH_PARENT, *with_interrupt, *self.login.inside(*argv)],
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def idle(self):
        """Return the number of idle nodes."""
        answer = self.run("sinfo", "--noheader", "--partition=normal", "--format=%T %D")
        counts = dict(line.split() for line in answer.stdout.splitlines())
        return int(counts.get("idle", 0))

    def jobs(self):
        """Return the numbers of pending and running jobs, without those that are completing."""
        states = "--states=PENDING,RUNNING,SUSPENDED"
        return self.run("squeue", "--noheader", "--format=%i", states).stdout.split()

    def clear(self):
        """Cancel all jobs and wait until every node is idle."""
        self.run("scancel", f"--user={os.getuid()}")
        self._await(lambda: self.idle() == len(self.nodes), "an idle cluster")

    def lose(self, node):
        """End a node as a power failure would."""
        node.end()

    def end(self):
        for node in (*self.nodes, self.login):
            node.end()
        self.log.close()
        self._sweeper.communicate()

    def _configure(self, cpus):
        values = {"folder": self.folder, "cpus": cpus, "user": os.getuid()}
        values["login"] = self.login.settings
        values["nodes"] = "\n".join(node.settings for node in self.nodes)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        pmix = f"PMIxCliTmpDirBase={self.folder}/local\nPMIxDirectConn=true\n"
        (self.folder / "mpi.conf").write_text(pmix)
        (self.folder / "state").mkdir()
        for node in self.nodes:
            (self.folder / f"spool-{node.name}").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)

    def _start(self, node, *argv):
        node.start(*argv, log=self.log, environment=self.environment)

    def _await(self, condition, name):
        for _ in range(300):
            if condition():
                return
            time.sleep(0.1)
        self.log.flush()
        log_text = (self.folder / "daemons.log").read_text(errors="replace")[-2000:]
        nodes = self.run("sinfo", "--noheader", "--Node", "--format=%N %T %E").stdout
        raise RuntimeError(f"{name} did not come up: {nodes}{log_text}")
