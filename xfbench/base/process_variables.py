"""Environment variables of the programs that xfbench starts: `select_variables` decides them all.

Only this module reads the environment of this process as a whole. A variable that reaches a place
where it must not be can change a figure without an error, or end a program of somebody else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import Enum

from xfbench.base import keeper

# The only variables that a rank has from this process, because results must not depend on a shell.
_OF_WORKERS = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "LOCPATH", "TZ"),
    "CUDA_VISIBLE_DEVICES",
)
_LIBRARIES = "LD_LIBRARY_PATH"
_OF_START_COMMANDS = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", _LIBRARIES)
# Prefixes of variables with which a start command finds peers and libraries.
_START_PREFIXES = (
    *("SLURM_", "OMPI_", "PRTE_", "PMIX_", "PMI_", "MPICH_", "HYDRA_", "I_MPI_", "MPIR_"),
    *("UCX_", "FI_", "NCCL_", "TACC_", "LSB_", "LSF_", "MUNGE", "CRAY_", "PALS_"),
)
_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|JWT|API_?KEY")  # for example SLURM_JWT
# Variables that say which rank a process is, and how it reaches its own start command. If this
# process is itself a rank, the ranks that it starts would take these for their own.
_OF_ONE_RANK = re.compile(
    r"OMPI_(COMM_WORLD|UNIVERSE|APP_CTX|NUM_APP|FIRST_RANKS|ARGV|COMMAND|FILE_LOCATION)\w*"
    r"|OMPI_MCA_(ess|initial_wdir|orte_(hnp|local_daemon|num_nodes|ess|jobfam|top_session))\w*"
    r"|PRTE_(LAUNCHED|MCA_(ess|prte_hnp|prte_ess))\w*"
    r"|PMIX_(RANK|NAMESPACE|ID|SERVER|DSTORE|GDS_MODULE|SECURITY_MODE|BFROP|HOSTNAME)\w*"
    r"|PMI_(RANK|SIZE|FD|PORT|ID|JOBID|SPAWNED|APPNUM|UNIVERSE_SIZE|PROCESS_MAPPING|LOCAL_\w+)"
    r"|PMI_CONTROL_\w+|MPI_LOCAL(RANKID|NRANKS)|HYDI_\w+|PALS_(RANKID|NODEID|LOCAL_RANKID)"
    r"|SLURM_(PROCID|LOCALID|NODEID|GTIDS|TASK_PID|STEPID|STEP_\w+|SRUN_COMM_\w+)"
)
_THREADS = re.compile(
    r"(OMP|KMP|GOMP)_\w+|(MKL|OPENBLAS|GOTO|BLIS|NUMEXPR|VECLIB)_(NUM|MAXIMUM)_THREADS"
    r"|MKL_(DYNAMIC|DOMAIN_NUM_THREADS|ENABLE_INSTRUCTIONS|DEBUG_CPU_TYPE|CBWR)"
    r"|OPENBLAS_(CORETYPE|MAIN_FREE|THREAD_TIMEOUT)"
)
_PRELOADED = re.compile("LD_(PRELOAD|AUDIT)|GLIBC_TUNABLES|MALLOC_.*")
_OF_XFBENCH = re.compile("XFBENCH_.*")
_OWN_OF_ONE_RANK = re.compile("XFBENCH_(RANK|SIZE|WATCH)")
_SHELL_FILES = re.compile("BASH_ENV|ENV")
_PYTHON = re.compile("PYTHON[A-Z]+|VIRTUAL_ENV")
# Git sets these in hooks, where they name another repository or index.
_GIT_REPOSITORY = re.compile(
    "GIT_(DIR|WORK_TREE|INDEX_FILE|PREFIX|COMMON_DIR|NAMESPACE|OBJECT_DIRECTORY|SHALLOW_FILE"
    "|ALTERNATE_OBJECT_DIRECTORIES|IMPLICIT_WORK_TREE|GRAFT_FILE|REPLACE_REF_BASE"
    "|NO_REPLACE_OBJECTS|TRACE.*)"
)
# Options of Slurm's programs. They would hide jobs, or change what the job script asks for.
_SLURM_OPTIONS = re.compile(
    "(SQUEUE|SCANCEL|SCONTROL)_.*"
    "|SBATCH_(ARRAY_INX|JOB_NAME|TIMELIMIT|NO_REQUEUE|REQUEUE|WAIT|OUTPUT|ERROR|INPUT)"
)
_THREAD_NAMES = (
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_THREAD_LIMIT"),
    *("OMP_SCHEDULE", "OMP_WAIT_POLICY", "OMP_MAX_ACTIVE_LEVELS", "OMP_STACKSIZE"),
    *("KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_HW_SUBSET", "KMP_SETTINGS"),
    *("GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS", "MKL_DYNAMIC"),
    *("OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "GOTO_NUM_THREADS", "BLIS_NUM_THREADS"),
)
# A node's shell, mpirun or a prolog of Slurm may set these for a rank. `env` unsets them there.
UNSET_FOR_RANKS = (
    *(_LIBRARIES, "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "PYTHONOPTIMIZE"),
    *("PYTHONSTARTUP", "BASH_ENV", "ENV", "GLIBC_TUNABLES", *_THREAD_NAMES),
)
# The other machine's shell may find its framework by PYTHONPATH and libraries, so these stay.
UNSET_FOR_BUNDLES = (
    *("PYTHONOPTIMIZE", "GLIBC_TUNABLES", *_THREAD_NAMES),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "XFBENCH_WATCH"),
)


class Purpose(Enum):
    """What a program is started for, which decides the variables that it gets."""

    RANK = "a rank, or the inspection of its interpreter"
    RANK_OF_USER = "a rank in an interpreter that the user named"
    START = "a command that starts ranks, such as mpirun"
    MEASUREMENT = "a measurement of this machine in this interpreter"
    MODULES = "a shell that loads modules"
    SLURM = "a query of Slurm"
    SUBMISSION = "sbatch, which passes its variables on to the job"
    PACKAGES = "an installer of Python packages"
    GIT = "git in the checkout of xfbench"
    PROGRAM = "any other program"


_OF_THIS_PROCESS = (_OWN_OF_ONE_RANK, _OF_ONE_RANK, _THREADS, _PRELOADED, _SHELL_FILES)
_LEFT_OUT: Mapping[Purpose, tuple[re.Pattern[str], ...]] = {
    Purpose.MEASUREMENT: _OF_THIS_PROCESS,
    Purpose.MODULES: (_OF_XFBENCH, _OF_ONE_RANK, _THREADS, _PRELOADED, _SHELL_FILES, _PYTHON),
    Purpose.SLURM: (_SLURM_OPTIONS,),
    Purpose.SUBMISSION: (*_OF_THIS_PROCESS, _SLURM_OPTIONS),
    Purpose.PACKAGES: (_PYTHON, _PRELOADED),
    Purpose.GIT: (_GIT_REPOSITORY,),
    Purpose.PROGRAM: (),
}


def select_variables(purpose: Purpose, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return those of `variables` that a program started for `purpose` gets.

    The mark of processes is never among them: `processes.py` gives each program its own.
    """
    return {
        name: value
        for name, value in variables.items()
        if name != keeper.MARK and _may_pass(purpose, name)
    }


def _may_pass(purpose: Purpose, name: str) -> bool:
    if purpose is Purpose.RANK:
        return name in _OF_WORKERS
    if purpose is Purpose.RANK_OF_USER:
        return name in (*_OF_WORKERS, _LIBRARIES)
    if purpose is Purpose.START:
        is_setting = name.startswith(_START_PREFIXES) and not _OF_ONE_RANK.fullmatch(name)
        return name in _OF_START_COMMANDS or (is_setting and not _SECRET.search(name))
    return not any(pattern.fullmatch(name) for pattern in _LEFT_OUT[purpose])


def may_come_from_modules(name: str) -> bool:
    """Return whether a rank may have this variable from a module that it uses.

    Threads and kernels depend on the request alone, and variables of xfbench on xfbench.
    """
    return not any(pattern.fullmatch(name) for pattern in (_OF_XFBENCH, _THREADS, _SHELL_FILES))
