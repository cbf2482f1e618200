"""Peaks of the machine: they are plausible, and results above them are refused."""

import json
import os

import numpy as np
import pytest

from xfbench.execution.validity import peak_defect
from xfbench.host import roofline
from xfbench.model.facts import workload_facts
from xfbench.model.gpus import Gpu
from xfbench.model.record import Limit
from xfbench.statistics import Interval, launch_throughput
from xfbench.workloads import workloads

THREADS = 1

# If other work disturbs the tries, they are made once more.
COUNTS_OF_TRIES = (roofline._TRIES, 2 * roofline._TRIES)


@pytest.fixture
def sessions(monkeypatch, tmp_path):
    """Return a function that starts a new session and returns the list of its measurements.

    The sessions share a temporary cache.
    """
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(roofline, "_KERNEL_FLAGS", {})
    measured = []
    tried = roofline.processes.output

    def output(*arguments, **settings):
        measured.append(arguments)
        return tried(*arguments, **settings)

    monkeypatch.setattr(roofline.processes, "output", output)

    def begin():
        monkeypatch.setattr(roofline, "_PEAKS", {})
        measured.clear()
        return measured

    return begin


@pytest.fixture(scope="module")
def peaks():
    return roofline.measure_peaks(THREADS)


def test_peaks_do_not_depend_on_modules_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    assert roofline._try_in_process(THREADS, "", 0.01, (64,))


def test_measured_peaks_are_plausible_for_a_processor(peaks):
    """The bounds per core are 64 float32 operations per cycle at 6 GHz, and 400 GB/s."""
    assert 1e8 < peaks["float32"] < 64 * 6e9
    assert 1e8 < peaks["float64"] < 32 * 6e9
    assert 1e8 < peaks["bandwidth"] < 400e9


@pytest.mark.parametrize(
    ("cpu_s", "undisturbed_s"),
    [
        (0.5, 0.25),  # two threads had the cores for a quarter of the second each
        (3.0, 1.0),  # threads that wait for each other
        (0.0, 1.0),  # less than a tick
    ],
)
def test_other_work_on_the_cores_does_not_lower_the_limit(monkeypatch, cpu_s, undisturbed_s):
    monkeypatch.setattr(roofline, "perf_counter", iter([0.0, 0.0, 1.0, 1.0]).__next__)
    monkeypatch.setattr(roofline, "process_time", iter([0.0, cpu_s]).__next__)
    [product] = roofline._measure_products(np.dtype("float32"), 2, 0.5, 10)
    assert product.flops == 2 * 10**3
    assert product.undisturbed_flops == 2 * 10**3 / undisturbed_s


def test_blas_kernels_are_tried_only_with_their_instructions():
    """OpenBLAS chooses kernels of half the speed for an unknown processor."""
    assert roofline._list_openblas_kernels(["avx2", "fma"]) == []
    assert roofline._list_openblas_kernels([*roofline._AVX512, "avx2"]) == ["SkylakeX"]
    assert roofline._list_openblas_kernels([*roofline._AVX512, "avx512_bf16"]) == [
        "SkylakeX",
        "Cooperlake",
    ]


@pytest.mark.deep
def test_best_of_all_measurements_is_the_peak(cell, monkeypatch, tmp_path):
    """The highest measurement counts, because noise only lowers it."""
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path))  # keeps fake peaks out of the real cache
    request = cell(threads=THREADS).request(1)
    monkeypatch.setattr(roofline, "_KERNEL_FLAGS", {})
    fake_peaks = {"float32": 1.0, "float64": 1.0, "bandwidth": 1e30}
    monkeypatch.setitem(roofline._PEAKS, THREADS, fake_peaks)
    assert roofline.find_or_measure_limit(request).matrix_product == 1.0
    roofline.measure_again_and_keep_best_peaks(THREADS)
    limit = roofline.find_or_measure_limit(request)
    assert limit.matrix_product > 1e8 and limit.memory_bandwidth == 1e30


@pytest.mark.deep
def test_peaks_are_cached_for_an_hour(cell, sessions, tmp_path):
    request = cell(threads=THREADS).request(1)
    assert len(sessions()) == 0
    first_limit = roofline.find_or_measure_limit(request)
    [file] = (tmp_path / "home" / "peaks").iterdir()

    measured = sessions()
    assert roofline.find_or_measure_limit(request) == first_limit
    assert measured == []

    written_time_s = file.stat().st_mtime
    os.utime(file, (written_time_s - 4000, written_time_s - 3700))
    measured = sessions()
    assert roofline.find_or_measure_limit(request).matrix_product > 1e8
    assert len(measured) in COUNTS_OF_TRIES
    assert file.stat().st_mtime >= written_time_s


@pytest.mark.deep
@pytest.mark.parametrize("content", [b"", b"[]", b'{"float32": 1}', b'{"float32": "much"}'])
def test_damaged_peak_cache_is_measured_again(content, cell, sessions, tmp_path):
    request = cell(threads=THREADS).request(1)
    sessions()
    roofline.find_or_measure_limit(request)
    [file] = (tmp_path / "home" / "peaks").iterdir()
    file.write_bytes(content)
    measured = sessions()
    assert roofline.find_or_measure_limit(request).matrix_product > 1e8
    assert len(measured) in COUNTS_OF_TRIES


def test_corrected_peak_stays_in_the_cache(cell, sessions):
    request = cell(threads=THREADS).request(1)
    sessions()
    roofline._PEAKS[THREADS] = {"float32": 1.0, "float64": 1.0, "bandwidth": 1e30}
    roofline.measure_again_and_keep_best_peaks(THREADS)
    sessions()
    assert roofline.find_or_measure_limit(request).memory_bandwidth == 1e30


def test_limit_has_the_median_product_of_each_try(cell, sessions):
    request = cell(threads=THREADS).request(1)
    sessions()
    limit = roofline.find_or_measure_limit(request)
    assert len(limit.matrix_product_tries) == roofline._TRIES
    assert min(limit.matrix_product_tries) > 0
    assert max(limit.matrix_product_tries) <= limit.matrix_product
    sessions()
    assert roofline.find_or_measure_limit(request) == limit  # from the cache


def test_usual_product_is_computed_from_the_tries_like_a_throughput_from_launches():
    values = {"threads": 1, "precision": "float32", "memory_bandwidth": 1, "source": "measured"}
    old_limit = Limit(matrix_product=9e9, **values)
    assert roofline.usual_matrix_product(old_limit) == Interval(9e9, None, None, 1)
    tries = (4e9, 5e9, 5e9, 6e9, 5e9)
    usual = roofline.usual_matrix_product(
        Limit(matrix_product=9e9, matrix_product_tries=tries, **values)
    )
    assert usual.low < usual.value < usual.high < 9e9
    assert usual.value == pytest.approx(5e9, rel=0.02)


def test_share_of_peak_is_training_arithmetic_over_the_peak(record):
    limit = Limit(
        threads=1,
        precision="float32",
        matrix_product=1e12,
        memory_bandwidth=1e11,
        source="measured",
    )
    launch = record(fields={"limit": limit})
    assert launch_throughput(launch) == pytest.approx(40)
    by_hand = 2 * launch.workload.train_macs_per_image * 40 / 1e12
    assert roofline.compute_record_min_peak_share(launch) == pytest.approx(by_hand)
    assert roofline.compute_record_min_peak_share(record()) is None


def make_gpus(*models, uuid_hashes=None):
    """Return the GPUs of ranks. A field is None if NVML did not report it."""
    silent = dict.fromkeys(Gpu.model_fields, None) | {"slowed_by": (), "slowed_seconds": {}}
    hashes = uuid_hashes or [str(rank) for rank in range(len(models))]
    return tuple(
        Gpu.model_validate({**silent, "rank": rank, "name": model, "uuid_hash": hashes[rank]})
        for rank, model in enumerate(models)
    )


V100 = "Tesla V100-SXM2-16GB"


def test_fewer_multiplications_than_the_direct_count_are_valid_on_a_gpu(cell):
    """LeNet's two convolutions have kernels of 5x5, and its inner products need all of theirs."""
    facts = workload_facts(workloads()["lenet"])
    on_cpu, on_gpu = (
        cell(device=device, framework="torch", workload="lenet").request(1)
        for device in ("cpu", "cuda")
    )
    gpus = make_gpus(V100)
    limit = roofline.find_or_measure_limit(on_gpu, gpus)
    images_per_second = 3 * limit.matrix_product / (2 * facts.train_macs_per_image)
    share = roofline.compute_min_peak_share(limit, facts, images_per_second, on_gpu, gpus)
    assert peak_defect(share) is None
    share = roofline.compute_min_peak_share(limit, facts, images_per_second, on_cpu)
    assert "300% of the peak" in peak_defect(share)
    conv1, conv2, ip = 20 * 24**2 * 2, 50 * 8**2 * 20 * 3, 3 * (800 * 500 + 500 * 10)
    least = limit.matrix_product / (2 * (conv1 + conv2 + ip))
    for speed, is_valid in ((0.99 * least, True), (1.01 * least, False)):
        share = roofline.compute_min_peak_share(limit, facts, speed, on_gpu, gpus)
        assert (peak_defect(share) is None) == is_valid
    other_network = facts.model_copy(update={"train_macs_per_image": 1})
    assert roofline.compute_min_peak_share(limit, other_network, 1.0, on_gpu, gpus) is None


def test_ranks_on_the_same_gpu_share_its_peak(cell):
    facts = workload_facts(workloads()["lenet"])
    request = cell(
        device="cuda", framework="torch", ranks=2, strategy="ddp", global_batch_size=8
    ).request(1)
    both = [make_gpus(V100, V100, uuid_hashes=hashes) for hashes in (("a", "b"), ("a", "a"))]
    limit = roofline.find_or_measure_limit(request, both[0])
    apart, shared = (
        roofline.compute_min_peak_share(limit, facts, 1.0, request, gpus) for gpus in both
    )
    assert shared == 2 * apart


def test_limit_matches_the_threads_of_the_launch(cell):
    one_thread, two_threads = (
        roofline.find_or_measure_limit(cell(threads=n).request(1)) for n in (1, 2)
    )
    assert (one_thread.threads, two_threads.threads) == (1, 2)
    assert one_thread.precision == "float32" and one_thread.source == "measured"


def test_precision_without_a_measurable_peak_has_no_limit(cell):
    assert roofline.find_or_measure_limit(cell(precision="bfloat16").request(1)) is None


def test_an_accelerator_has_its_published_peak(cell):
    request = cell(device="cuda", framework="torch").request(1)
    limit = roofline.find_or_measure_limit(request, make_gpus(V100, V100))
    assert limit.matrix_product == 15.7e12 and "NVIDIA" in limit.source
    assert roofline.find_or_measure_limit(request, make_gpus("Some New Thing")) is None
    assert roofline.find_or_measure_limit(request, make_gpus(V100, "NVIDIA H200")) is None
    assert roofline.find_or_measure_limit(request, make_gpus(None)) is None
    assert roofline.find_or_measure_limit(request) is None


@pytest.mark.parametrize(
    ("model", "bandwidth"),
    [
        ("Tesla V100-PCIE-16GB", 900e9),
        ("NVIDIA A100-SXM4-80GB", 2039e9),
        ("NVIDIA A100-SXM4-40GB", 1555e9),
        ("NVIDIA H100 80GB HBM3", 3350e9),
        ("NVIDIA H200", 4800e9),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
    ],
)
def test_a_peak_is_that_of_the_model_and_not_of_its_generation(cell, model, bandwidth):
    limit = roofline.find_or_measure_limit(
        cell(device="cuda", framework="torch").request(1), make_gpus(model)
    )
    assert (limit and limit.memory_bandwidth) == bandwidth


def test_every_published_machine_has_peaks_and_a_source():
    assert {"knl", "skx", "k40", "p100", "v100", "a100", "h200"} <= {
        *roofline.load_published_peaks()
    }
    for published_machine in roofline.load_published_peaks().values():
        assert (
            published_machine["matrix_product"]["float32"]
            > published_machine["memory_bandwidth"]
            > 1e11
        )
        assert published_machine["source"]


@pytest.mark.parametrize(("slowest", "is_usual"), [(5.1e11, True), (4.9e11, False)])
def test_tries_that_differ_by_more_than_twice_give_no_usual_product(slowest, is_usual):
    limit = Limit(
        threads=1,
        precision="float32",
        matrix_product=1e12,
        matrix_product_tries=(1e12, slowest, 9e11, 9e11, 9e11),
        memory_bandwidth=1,
        source="measured",
    )
    assert (roofline.usual_matrix_product(limit) is not None) == is_usual


def test_peaks_of_disturbed_tries_are_kept_for_ten_minutes(cell, sessions, tmp_path):
    request = cell(threads=THREADS).request(1)
    sessions()
    roofline.find_or_measure_limit(request)
    [file] = (tmp_path / "home" / "peaks").iterdir()
    for tries, seconds, is_too_old in (
        ([9.0] * 5, 3000, False),
        ([9.0] * 5, 3601, True),
        ([9.0, 4.0], 500, False),
        ([9.0, 4.0], 601, True),
    ):
        peaks = {"float32": 9.0, "float64": 9.0, "bandwidth": 1.0, "float64_tries": [9.0]}
        file.write_text(json.dumps({**peaks, "float32_tries": tries}))
        written_s = file.stat().st_mtime - seconds
        os.utime(file, (written_s, written_s))
        assert (roofline._read_cached_peaks(file) is None) == is_too_old


@pytest.mark.parametrize(("tries", "measurements"), [([9.0, 4.0], 2), ([9.0, 8.0], 1)])
def test_disturbed_tries_are_measured_once_more(cell, monkeypatch, tmp_path, tries, measurements):
    measured = []

    def measure(threads):
        measured.append(threads)
        best = {"float32": 9.0, "float64": 9.0, "bandwidth": 1.0}
        roofline._PEAKS[threads] = {**best, "float32_tries": tries, "float64_tries": [9.0]}

    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path))
    monkeypatch.setattr(roofline, "_PEAKS", {})
    monkeypatch.setattr(roofline, "measure_again_and_keep_best_peaks", measure)
    roofline.find_or_measure_limit(cell(threads=1).request(1))
    assert measured == [1] * measurements
