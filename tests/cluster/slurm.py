"""A real Slurm cluster on this machine: slurmctld, slurmd, munge and PMIx in namespaces."""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.cluster import namespaces

PACKAGES = [
    *("slurmd", "slurmctld", "slurm-client", "munge", "libpmix-dev", "openmpi-bin", "lmod"),
    *("iproute2", "util-linux"),
]
PROGRAMS = ["slurmd", "slurmctld", "srun", "munged", "mpirun", "ip", "unshare", "nsenter"]
CONFIGURATION = """
ClusterName=xfbench
SlurmctldHost=login
SlurmUser=root
SlurmdUser=root
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
SelectTypeParameters=CR_Core
SlurmdTimeout=15
KillWait=2
ReturnToService=2
MinJobAge=3600
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
NodeName=node[1-{count}] CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=normal Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=small Nodes=node1 MaxTime=10 State=UP
"""


def missing():
    """Programs that are not here, after an attempt to install them; a reason, or None."""
    if all(map(shutil.which, PROGRAMS)):
        return None
    if os.getuid() != 0:
        return f"not installed, and only root may: {' '.join(PACKAGES)}"
    # At run level 1 Debian's packages start no daemon of their own.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES],
    ):
        done = subprocess.run(
            ["apt-get", *words], env=quiet, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            return f"apt-get {words[0]} failed: {done.stderr.strip()[-300:]}"
    return None


class Cluster:
    """A login node and `count` nodes with Slurm running; ended by `end`."""

    def __init__(self, count=4, cpus=2):
        # Sockets have a length limit: a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="xfc-", dir="/tmp"))
        names = ["login", *(f"node{number}" for number in range(1, count + 1))]
        self.login, *self.nodes = namespaces.connected(names, self.folder)
        self._configure(count, cpus)
        self.log = (self.folder / "daemons.log").open("wb")
        self._start(
            self.login,
            *("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket"),
            *(f"--key-file={self.folder}/munge.key", f"--log-file={self.folder}/munged.log"),
            *(f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munge.seed"),
        )
        self._await((self.folder / "munge.socket").exists, "munged")
        self._start(self.login, "slurmctld", "-D")
        for node in self.nodes:
            self._start(node, "slurmd", "-D")
        self._await(lambda: self.idle() == count, "Slurm")

    @property
    def environment(self):
        """What commands on the nodes are given: this process's variables, and Slurm's."""
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def run(self, *argv, timeout=120, **variables):
        """Run a command on the login node: what came of it, output as text."""
        return subprocess.run(
            self.login.inside(*argv),
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def popen(self, *argv, **variables):
        """Start a command on the login node, output as text through pipes.

        An interrupt reaches it, also where this process was told to ignore its own.
        """
        heard = ("env", "--default-signal=INT")
        return subprocess.Popen(
            [*namespaces.WITH_PARENT, *heard, *self.login.inside(*argv)],
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def idle(self):
        """How many nodes wait for work."""
        answer = self.run("sinfo", "--noheader", "--partition=normal", "--format=%T %D")
        counts = dict(line.split() for line in answer.stdout.splitlines())
        return int(counts.get("idle", 0))

    def jobs(self):
        """Numbers of the jobs that wait or run; of a lost node Slurm may still be clearing up."""
        states = "--states=PENDING,RUNNING,SUSPENDED"
        return self.run("squeue", "--noheader", "--format=%i", states).stdout.split()

    def clear(self):
        """Have no job, and every node waiting for work."""
        self.run("scancel", "--user=root")
        self._await(lambda: self.idle() == len(self.nodes), "an idle cluster")

    def lose(self, node):
        """A node's power fails."""
        node.end()

    def end(self):
        for node in (*self.nodes, self.login):
            node.end()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self, count, cpus):
        values = {"folder": self.folder, "count": count, "cpus": cpus}
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

    def _await(self, there, what):
        for _ in range(300):
            if there():
                return
            time.sleep(0.1)
        self.log.flush()
        said = (self.folder / "daemons.log").read_text(errors="replace")[-2000:]
        nodes = self.run("sinfo", "--noheader", "--Node", "--format=%N %T %E").stdout
        raise RuntimeError(f"{what} did not come up: {nodes}{said}")
