"""What a process says of its threads, and of the processes that it started."""

import shutil
import subprocess
import sys

import pytest

from xfbench.worker import observe


@pytest.mark.parametrize(
    ("after", "count"),
    [
        ({1: 150, 2: 15, 3: 14}, 2),  # a tenth of the busiest, and less
        ({1: 5, 2: 1, 3: 0}, 2),
        ({1: 0, 2: 0}, 0),
        ({}, 0),
    ],
)
def test_thread_works_from_a_tenth_of_the_busiest_time_on(after, count):
    assert observe.count_working_threads({}, after) == count


def test_time_of_a_thread_counts_from_the_first_reading():
    assert observe.count_working_threads({1: 1000, 2: 5}, {1: 1010, 2: 105, 3: 9}) == 2


@pytest.fixture
def start_child():
    """A function that starts a Python script; it returns when the script has printed a line."""
    processes = []

    def start(script):
        process = subprocess.Popen(
            [sys.executable, "-c", f"{script}\nprint(flush=True)\ninput()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        processes.append(process)
        process.stdout.readline()

    yield start
    for process in processes:
        process.communicate(b"\n", timeout=60)


def test_peak_memory_includes_running_children(start_child):
    before = observe.peak_rss_bytes_with_descendants()
    start_child("b'x' * 2**28")
    assert observe.peak_rss_bytes_with_descendants() - before >= 2**28


def test_a_name_of_a_process_adds_no_line_to_its_status(tmp_path):
    (tmp_path / "status").write_text("Name:\ta\x1cVmHWM: 9 kB\nVmHWM:\t    5 kB\n")
    assert observe._peak_rss_bytes_of(tmp_path) == 5 * 1024


def test_cpu_time_of_children_includes_time_in_the_kernel(start_child):
    before = observe.descendants_cpu_seconds()
    start_child("import os\nwhile os.times().system < 0.5: os.urandom(10**6)")
    cpu_seconds = observe.descendants_cpu_seconds() - before
    assert cpu_seconds >= 0.5


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_version_of_cudnn_is_that_of_the_mapped_library(tmp_path):
    source, library = tmp_path / "cudnn.c", tmp_path / "libcudnn.so.9"
    source.write_text("#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 91900; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    code = (
        "import ctypes, sys; from xfbench.worker import observe; print(observe.cudnn_version());"
        "ctypes.CDLL(sys.argv[1]); print(observe.cudnn_version())"
    )
    command = [sys.executable, "-c", code, str(library)]
    completed = subprocess.run(command, check=True, capture_output=True, text=True)
    assert completed.stdout.split() == ["None", "91900"]
