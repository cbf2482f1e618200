"""Observations of this process and its descendants: CPU time, affinity, libraries and memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, Sequence

import threadpoolctl

from xfbench.worker.system_files import read_system_file, replace_undecodable

_MATH_LIBRARIES = (
    "blas",
    "mkl",
    "dnnl",
    "onednn",
    "gomp",
    "iomp",
    "libomp",
    "cudnn",
    "cublas",
    "nccl",
)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_excluded_processes: set[int] = set()


def thread_ticks() -> dict[int, int]:
    """Return the CPU time that each thread has used, by thread id, in clock ticks (proc(5))."""
    ticks = {}
    for task in Path("/proc/self/task").iterdir():
        fields = _read_stat_fields_after_name(task)
        if fields:
            ticks[int(task.name)] = int(fields[11]) + int(fields[12])
    return ticks


def count_threads_named(name_prefix: str) -> int:
    """Count this process's threads whose names start with `name_prefix`.

    Only the first 15 characters of `name_prefix` count, because the system truncates thread names.
    """
    names = (read_system_file(task / "comm") or "" for task in Path("/proc/self/task").iterdir())
    return sum(name.startswith(name_prefix[:15]) for name in names)


def count_working_threads(before: dict[int, int], after: dict[int, int]) -> int:
    """Count the threads that worked between two results of `thread_ticks`.

    A thread worked if it used at least a tenth of the busiest thread's CPU time.
    """
    ticks_spent = [ticks - before.get(thread, 0) for thread, ticks in after.items()]
    busiest = max(ticks_spent, default=0)
    return sum(1 for ticks in ticks_spent if ticks >= max(1, busiest / 10))


def cpu_seconds_between(before: dict[int, int], after: dict[int, int]) -> float:
    """Return the CPU seconds that threads used between two results of `thread_ticks`.

    Threads that are missing in `after` have ended and do not count.
    """
    return sum(n - before.get(thread, 0) for thread, n in after.items()) / _TICKS_PER_SECOND


def cpu_seconds() -> float:
    """Return the CPU seconds that this process has used, including its ended threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def descendants_cpu_seconds() -> float:
    """Return the CPU seconds that all descendants of this process have used.

    Descendants that have ended count too.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    stats = [_read_stat_fields_after_name(Path("/proc", str(pid))) for pid in descendant_pids()]
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in stats if fields)
    return ended.ru_utime + ended.ru_stime + ticks / _TICKS_PER_SECOND


def boot_id() -> str:
    """Return what the processes of one running kernel share, whatever the names of their hosts."""
    return read_system_file(Path("/proc/sys/kernel/random/boot_id")) or socket.gethostname()


def start_seconds_since_boot() -> float:
    """Return when this process was started, in seconds since boot."""
    return int(_read_stat_fields_after_name(Path("/proc/self"))[19]) / _TICKS_PER_SECOND


def affinity() -> list[int]:
    """Return the CPUs on which at least one thread of this process may run."""
    allowed: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            allowed |= os.sched_getaffinity(int(task.name))
    return sorted(allowed)


def mapped_library_short_paths(*name_parts: str) -> list[str]:
    """Return mapped shared libraries whose name contains one of `name_parts`, as "folder/name".

    The folder distinguishes builds of a library. The rest of the path stays private.
    """
    return sorted(map(_folder_and_file_name, _mapped_library_paths(*name_parts)))


def _mapped_library_paths(*name_parts: str) -> set[Path]:
    """Return the paths of mapped shared libraries whose name contains one of `name_parts`."""
    lines = os.fsdecode(Path("/proc/self/maps").read_bytes()).split("\n")
    paths = {Path("/" + line.partition("/")[2]) for line in lines if ".so" in line}
    return {path for path in paths if any(part in path.name for part in name_parts)}


def mapped_math_library_names() -> list[str]:
    """Return the file names of mapped libraries for BLAS, oneDNN, OpenMP, cuDNN and NCCL."""
    return sorted(
        {name.rpartition("/")[2] for name in mapped_library_short_paths(*_MATH_LIBRARIES)}
    )


def allocator_short_path() -> str:
    """Return the file that provides the memory allocator, as "folder/name".

    xfbench looks up a function that every allocator provides and that interpreters do not call.
    `malloc` is unsuitable: if an executable calls `malloc`, the address found for `malloc` may be
    in the executable instead of the allocator.
    """
    return symbol_provider("malloc_usable_size", "libc.so.6")


def cudnn_version() -> int | None:
    """Return the version of the mapped cuDNN as its library reports it; None without cuDNN.

    For example, 91900 is 9.19.0.
    """
    for path in _mapped_library_paths("libcudnn.so"):
        with contextlib.suppress(OSError, AttributeError):
            function = ctypes.CDLL(str(path), os.RTLD_NOLOAD | os.RTLD_LAZY).cudnnGetVersion
            function.restype = ctypes.c_size_t
            return int(function())
    return None


def thread_pool_sizes(*path_parts: str) -> dict[str, int]:
    """Return the number of threads of each mapped BLAS and OpenMP library.

    A key is the kind of the library and its file name, such as "openmp libgomp.so.1". Only
    libraries whose path contains one of `path_parts` count. The adapter knows which libraries
    belong to its framework.
    """
    return {
        info["internal_api"] + " " + Path(info["filepath"]).name: info["num_threads"]
        for info in threadpoolctl.threadpool_info()
        if any(part in info["filepath"] for part in path_parts)
    }


def symbol_provider(symbol: str, library: str) -> str:
    """Return the file that provides `symbol` to the mapped `library`, as "folder/name".

    The search order is the dynamic linker's: a library that was loaded earlier, for example a
    preloaded one, has precedence. If the symbol is not found, the result is "".
    """
    handles = [ctypes.CDLL(None)]
    with contextlib.suppress(OSError):
        handles.append(ctypes.CDLL(library, os.RTLD_NOLOAD | os.RTLD_LAZY))
    for handle in handles:
        with contextlib.suppress(AttributeError):
            address = ctypes.cast(getattr(handle, symbol), ctypes.c_void_p)
            info = _SymbolInfo()
            if handles[0].dladdr(address, ctypes.byref(info)):
                return _folder_and_file_name(Path(os.fsdecode(info.file)).resolve())
    return ""


@contextlib.contextmanager
def captured_stdout() -> Iterator[list[str]]:
    """Capture the lines that Python and C libraries write to standard output in this process.

    The yielded list is empty until the context ends.
    """
    lines: list[str] = []
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        libc.fflush(None)
        saved_stdout = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            libc.fflush(None)
            os.dup2(saved_stdout, 1)
            os.close(saved_stdout)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def peak_rss_bytes_with_descendants() -> int:
    """Return the sum of the peak memory of this process and of its descendants, in bytes.

    The processes may reach their peaks at different times, so they may never use the sum at once.
    Of the descendants that have ended, only the one with the largest peak counts.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (
        own_peak
        + ended
        + sum(_peak_rss_bytes_of(Path("/proc", str(pid))) for pid in descendant_pids())
    )


def installed_packages(folders: Sequence[str] | None = None) -> dict[str, str]:
    """Return the versions of the distributions installed in `folders`, by distribution name.

    `folders` None: the folders on this interpreter's path.
    """
    from importlib import metadata

    versions: dict[str, Any] = {}
    search: dict[str, Any] = {} if folders is None else {"path": list(folders)}
    for distribution in metadata.distributions(**search):
        name = distribution.metadata["Name"]
        if name:
            versions[name.lower().replace("_", "-")] = distribution.version
    return dict(sorted(versions.items()))


class _SymbolInfo(ctypes.Structure):
    """The struct Dl_info that dladdr(3) fills in."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _folder_and_file_name(path: Path) -> str:
    return replace_undecodable(f"{path.parent.name}/{path.name}")


def _read_stat_fields_after_name(process: Path) -> list[str]:
    """Return the fields after the command's name in the `stat` file of a process (proc(5)).

    `process` is the folder in `/proc` of a process or thread. If it has ended, the list is empty.
    """
    try:
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def exclude_process_from_counts(pid: int) -> None:
    """Exclude the process `pid` and its descendants from later results of `descendant_pids`."""
    _excluded_processes.add(pid)


def descendant_pids() -> set[int]:
    """Return the ids of the running children of this process, and of their descendants.

    Processes excluded by `exclude_process_from_counts` are left out.
    """
    parents = {
        int(entry.name): int(fields[1])
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and (fields := _read_stat_fields_after_name(entry))
    }
    processes: set[int] = set()
    generation = {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        generation -= processes | _excluded_processes
        processes |= generation
    return processes


def _peak_rss_bytes_of(process: Path) -> int:
    try:
        lines = (process / "status").read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
