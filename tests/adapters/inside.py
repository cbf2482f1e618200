"""Run cases in a framework's interpreter: `PYTHON inside.py JOB`, with the worker on its path.

Each case names the folder of its answer: arrays in `answer.npz`, everything else in `answer.json`,
which is written last. The answer of a failed case is its traceback. This file must run on
Python 3.9.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from xfbench.worker import checkpoint, feed, observe, profile
from xfbench.worker.input import open_data_set, synthetic_batch
from xfbench.worker.protocol import Group, Options, TrainingFiles, Unavailable
from xfbench.workloads import workload_from_json
from xfbench.workloads.initial import initial_parameters

BATCH_SIZE = 2
EPOCHS = 6
# The programs differ, because a process does not compile the same program twice.
COMPILED_BATCHES = {"folder 700": 2, "folder 777": 3, "link 700": 4}


def measure(trainer, workload, steps):
    """Train `steps` updates on one batch; return losses, gradients and weights by name.

    The names are test_loss (at the initial weights), gradient/<parameter>, loss (steps,),
    initial/<parameter> and final/<parameter>. Weights of a large network are left out, except
    running averages.
    """

    def read_weights(moment):
        return {
            f"{moment}/{name}": value
            for name, value in trainer.parameters().items()
            if not is_large(workload) or name.endswith(("/mean", "/variance"))
        }

    initial = initial_parameters(workload.network, 0)
    trainer.assign(initial)
    batch = trainer.load(*synthetic_batch(workload, BATCH_SIZE, 0))
    arrays = {**read_weights("initial"), "test_loss": np.asarray([trainer.test_loss(batch)])}
    gradients = trainer.gradients(batch)
    arrays.update({f"gradient/{name}": value for name, value in gradients.items()})
    trainer.assign(initial)
    losses = []
    for _ in range(steps):
        trainer.step(batch)
        losses.append(trainer.wait_for_loss())
    arrays["loss"] = np.asarray(losses, np.float64)
    return {**arrays, **read_weights("final")}


def is_large(workload):
    """Return whether the workload's gradients are too large to store for every framework."""
    return workload.network.input_shape[1] > 64


def distance(value, truth):
    """Return the relative distance in the norm; the absolute one if the truth is about zero."""
    value, truth = np.asarray(value, np.float64), np.asarray(truth, np.float64)
    size = np.linalg.norm(truth)
    difference = np.linalg.norm(value - truth)
    return float(difference / size if size > 1e-10 else difference)


def train(case, folder):
    """Measure a training and its distances from the truth; return arrays of small networks too."""
    workload, trainer = build(case)
    measured_arrays = measure(trainer, workload, case["steps"])
    distances = {}
    with np.load(case["truth"], allow_pickle=False) as truth:
        for name in truth.files:
            if name == "loss":
                distances[name] = distance(measured_arrays[name][:1], truth[name])
            elif case["steps"] == 1 or not name.startswith("final/"):
                distances[name] = distance(measured_arrays[name], truth[name])
    arrays = {} if is_large(workload) else measured_arrays
    return arrays, {"distances": distances, "observed": trainer.runtime_info()}


def save_and_restore(case, folder):
    """Save a checkpoint and continue from it in another trainer; reading a pickle fails."""
    workload = workload_from_json(case["workload"])

    def start(seed):
        _, trainer = build(case)
        trainer.assign(initial_parameters(workload.network, seed))
        return trainer

    def continue_training(trainer, seeds):
        for seed in seeds:
            trainer.step(trainer.load(*synthetic_batch(workload, 4, seed)))
            trainer.wait_for_loss()
        return checkpoint.parameter_digests(trainer.parameters())

    def refuse(*_, **__):
        raise RuntimeError("a pickle was read")

    checkpoint_folder = folder / "checkpoint"
    checkpoint_folder.mkdir()
    first_trainer = start(0)
    before = continue_training(first_trainer, range(3))
    weights = first_trainer.parameters()
    first_trainer.save(checkpoint_folder)
    end = continue_training(first_trainer, range(3, 6))

    second_trainer = start(1)
    readers = ("load", "loads", "Unpickler", "_Unpickler")
    with mock.patch.multiple(pickle, **dict.fromkeys(readers, refuse)):
        second_trainer.restore(checkpoint_folder)
    restored = checkpoint.parameter_digests(second_trainer.parameters())
    weights_alone = start(0)
    weights_alone.assign(weights)
    return {}, {
        "parameters": restored == before,
        "end": continue_training(second_trainer, range(3, 6)) == end,
        "end of weights alone": continue_training(weights_alone, range(3, 6)) == end,
        "averages": sum(name.endswith("/mean") for name in before),
        "bytes": checkpoint.folder_bytes(checkpoint_folder),
        "least": checkpoint.min_checkpoint_bytes(workload, weights),
    }


def read(case, folder):
    """Train with the framework's own reader; return the images as the network reads them."""
    workload, trainer = build(case)
    module = importlib.import_module(f"xfbench.adapters.{case['framework']}.reader")
    data = open_data_set("set", workload, 1, 0, case["folder"]).train
    data_folder = Path(case["folder"])
    data_format, size = case["format"], workload.batch_size
    files = TrainingFiles(data_folder, data_format, len(data), workload, size, 1)
    reader = module.open_reader(files, Options(case["kernel"], case["threads"]))
    images, labels = [], []
    for seed in range(EPOCHS):
        for batch in reader.epoch(seed):
            trainer.step(batch)
            images.append(np.array(trainer.layer_outputs(batch)["data"]))
            label = batch[1]
            labels.append(label.asnumpy() if hasattr(label, "asnumpy") else np.asarray(label))
    unfinished_epoch = reader.epoch(0)
    next(unfinished_epoch)
    unfinished_epoch.close()
    comparison = feed.compare_reader_images(reader, data)
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line for line in maps if str(data_folder.resolve()) in line]
    facts = {"compared": comparison, "mapped": mapped, "loss": trainer.wait_for_loss()}
    return {"images": np.array(images), "labels": np.array(labels)}, facts


def keep_busy(case, folder):
    """Train for a second; return thread pool sizes and the mean number of busy CPUs."""
    workload, trainer = build(case)
    batch = trainer.load(*synthetic_batch(workload, 64, 0))
    for _ in range(3):
        trainer.step(batch)
        trainer.wait_for_loss()
    start, used = time.perf_counter(), observe.cpu_seconds()
    while time.perf_counter() - start < 1:
        trainer.step(batch)
        trainer.wait_for_loss()
    cpus = (observe.cpu_seconds() - used) / (time.perf_counter() - start)
    return {}, {"pools": trainer.runtime_info()["pools"], "cpus": cpus}


def profile_steps(case, folder):
    """Profile a few steps with the framework's own profiler; return seconds by phase and layer."""
    workload, trainer = build(case)
    batch = trainer.load(*synthetic_batch(workload, 8, 0))
    trainer.step(batch)
    trainer.wait_for_loss()
    profiler, seconds = profile.profile_steps(trainer, batch, time.perf_counter)
    return {}, {"profiler": profiler, "seconds": seconds}


def refuse_device(case, folder):
    """Build on a device that does not exist; return the adapter's message."""
    try:
        build(case)
    except Unavailable as error:
        return {}, {"unavailable": str(error)}
    return {}, {"unavailable": None}


def count_exported(case, folder):
    """Load exported files in Caffe; return the number of values that its net learns."""
    import caffe

    from xfbench.adapters.caffe import prototxt

    workload = workload_from_json(case["workload"])
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(prototxt.train_val(workload, 1))
    solver.write_text(prototxt.solver(workload, str(net)))
    blobs = caffe.SGDSolver(str(solver)).net.params.values()
    return {}, {"count": int(sum(blob.data.size for layer in blobs for blob in layer))}


def switch_cudnn(case, folder):
    """Build with a GPU kernel; return the state of PyTorch's cuDNN switches."""
    import torch

    build(case)
    cudnn = torch.backends.cudnn
    names = ("enabled", "benchmark", "deterministic", "allow_tf32")
    return {}, {name: getattr(cudnn, name) for name in names}


def switch_tf32(case, folder):
    """Build; return PyTorch's TF32 switches, also those of a version without their old names."""
    import torch

    build(case)
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    today = [cudnn.conv.fp32_precision == "tf32", matmul.fp32_precision == "tf32"]
    later = SimpleNamespace(
        mkldnn=torch.backends.mkldnn,
        cudnn=SimpleNamespace(conv=SimpleNamespace()),
        cuda=SimpleNamespace(matmul=SimpleNamespace()),
    )
    with mock.patch.object(torch, "backends", later):
        build(case)
    words = [later.cudnn.conv.fp32_precision, later.cuda.matmul.fp32_precision]
    return {}, {"in TF32": today, "without old names": words}


def compile_into(case, folder):
    """Compile into a folder with the case's mode, or a link to it; return what was used."""
    target = folder / "compiled"
    target.mkdir()
    kind, _, mode = case["data"].partition(" ")
    target.chmod(int(mode, 8))
    if kind == "link":
        target = folder / "link"
        target.symlink_to("compiled")
    with set_variable("TORCHINDUCTOR_CACHE_DIR", str(target)):
        workload, trainer = build(case)
        trainer.step(trainer.load(*synthetic_batch(workload, COMPILED_BATCHES[case["data"]], 0)))
        used = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        return {}, {
            "used": used == target,
            "libraries": len([*used.rglob("*.so")]),
            "left": len([*target.iterdir()]),
            "kernel": trainer.runtime_info()["kernel"],
        }


def compile_beside(case, folder):
    """Compile while processes that compile GPU kernels wait; return how many there are."""
    workload, trainer = build(case)
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    with mock.patch.object(config, "compile_threads", 2):
        AsyncCompile.process_pool().submit(os.getpid).result()
    trainer.step(trainer.load(*synthetic_batch(workload, 5, 0)))
    trainer.wait_for_loss()
    before = len(observe.descendant_pids())
    trainer.end_compile_processes()
    return {}, {
        "threads": config.compile_threads,
        "cpus": len(os.sched_getaffinity(0)),
        "before": before,
        "after": len(observe.descendant_pids()),
    }


def copy_to_fake_gpu(case, folder):
    """Copy a batch, and queue four steps, on a GPU that only writes down what it is asked."""
    import torch

    from xfbench.adapters.torch.device import BatchCopier

    calls, current = [], ["training"]

    class Stream:
        def __init__(self, name="copying"):
            self.name = name

        def wait_stream(self, other):
            calls.append(f"{self.name} waits for {other.name}")

        def record_event(self):
            calls.append("event")
            number = calls.count("event")
            return mock.Mock(synchronize=lambda: calls.append(f"host waits for event {number}"))

    @contextlib.contextmanager
    def stream(chosen):
        current.append(chosen.name)
        yield
        current.pop()

    def pin_memory(tensor):
        calls.append("pin")
        return tensor.clone(memory_format=torch.preserve_format)

    def to(tensor, device, *options, non_blocking=False):
        way = "at once" if non_blocking else "blocking"
        calls.append(f"{current[-1]}: to {device} {way}")
        return plain_to(tensor, *options) if options else tensor

    def record_stream(tensor, used):
        calls.append(f"used by {used.name}")

    plain_to = torch.Tensor.to
    fake_cuda = mock.patch.multiple(
        torch.cuda, Stream=Stream, stream=stream, current_stream=lambda: Stream(current[-1])
    )
    fake_tensor = mock.patch.multiple(
        torch.Tensor, pin_memory=pin_memory, to=to, record_stream=record_stream
    )
    images, labels = synthetic_batch(workload_from_json(case["workload"]), 2, 0)
    with fake_cuda, fake_tensor:
        copier = BatchCopier(torch.device("cuda"), torch.float32, torch.channels_last)
        copied = copier.copy(torch.from_numpy(images), torch.from_numpy(labels))
        copy_calls = calls[:]
        for _ in range(4):
            copier.limit_steps_ahead()
    return {}, {
        "copy": copy_calls,
        "steps": calls[len(copy_calls) :],
        "equal": bool((copied[0].numpy() == images).all() and (copied[1].numpy() == labels).all()),
        "channels last": copied[0].is_contiguous(memory_format=torch.channels_last),
    }


# Events of a step: name, number, start and end on the CPU in microseconds, number of the operation
# that they belong to (0: none), and seconds on the GPU (None: an event of the CPU).
STEP_EVENTS = [
    ("xfbench.layer conv1", 1, 0, 100, 0, None),
    ("aten::conv2d", 2, 10, 90, 0, None),
    ("aten::cudnn_convolution", 3, 20, 80, 0, None),
    ("Lazy Function Loading", 3, 30, 40, 0, None),  # has the number of the operation around it
    ("cudaLaunchKernel", 71, 50, 60, 3, None),
    ("autograd::engine::evaluate_function: ConvolutionBackward0", 4, 200, 300, 0, None),
    ("cudaLaunchKernel", 72, 210, 220, 4, None),
    ("Optimizer.step#SGD.step", 5, 400, 500, 0, None),
    ("cudaLaunchKernel", 73, 410, 420, 5, None),
    ("void cudnn::forward<float>(int)", 71, 1000, 1007, 3, "cuda"),
    ("xfbench.layer conv1", 1, 1000, 1007, 0, "cuda"),  # the range, on the GPU
    ("void wgrad<float>(int)", 72, 1010, 1021, 4, "cuda"),
    ("void sgd<float>(int)", 73, 1030, 1043, 5, "cuda"),
    ("Memcpy HtoD (Pinned -> Device)", 99, 1050, 1067, 0, "cuda"),
]
# What else a GPU may run in a step.
EXCHANGE_EVENTS = [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(Args<4096ul>)", 101, 1100, 1110, 0, "cuda"),
    ("Memcpy PtoP (Device -> Device)", 102, 1110, 1112, 0, "cuda"),
    ("Memcpy DtoH (Device -> Pinned)", 103, 1112, 1113, 0, "cuda"),
    ("Memcpy DtoD (Device -> Device)", 104, 1113, 1133, 0, "cuda"),  # within the GPU
    ("Memset (Device)", 105, 1133, 1136, 0, "cuda"),
]


@contextlib.contextmanager
def fake_profiler(**options):
    """Yield a recording of STEP_EVENTS, put together as PyTorch puts it together."""
    import torch
    from torch.autograd import DeviceType, profiler_util

    events, by_number = [], {}
    for name, number, start, end, operation, device in STEP_EVENTS:
        sequence = 9 if number in (3, 4) and name != "Lazy Function Loading" else -1
        kind = DeviceType.CUDA if device else DeviceType.CPU
        event = profiler_util.FunctionEvent(
            number, name, 0, start, end, device_type=kind, sequence_nr=sequence, use_device="cuda"
        )
        events.append(event)
        if not device and not operation:
            by_number.setdefault(number, []).append(event)
        if device and operation:
            for owner in by_number[operation]:
                owner.append_kernel(name, 0, end - start)
    recorded = profiler_util.EventList(events, use_device="cuda")
    recorded._build_tree()
    with mock.patch.object(torch.cuda, "synchronize"):
        yield mock.Mock(events=lambda: recorded)


def profile_fake_gpu(case, folder):
    """Profile a step of a GPU from STEP_EVENTS; return the times by layer and what ran."""
    import torch

    from xfbench.adapters.torch import profile

    with mock.patch.object(profile, "profiler", fake_profiler):
        times = profile.profile(mock.Mock(), "cuda", lambda: 0.0)
        calls = profile.record_gpu_calls(lambda: None)
        with mock.patch.dict(globals(), STEP_EVENTS=[*STEP_EVENTS, *EXCHANGE_EVENTS]):
            calls_with_exchange = profile.record_gpu_calls(lambda: None)
    with fake_profiler() as recording:
        range_event = next(e for e in recording.events() if e.name == "xfbench.layer conv1")
        counted_by_torch = range_event.device_time_total
    return {}, {
        "forward": times.forward,
        "backward": times.backward,
        "update": times.update,
        "unattributed": times.unattributed,
        "counted by PyTorch": counted_by_torch / 1e6,
        "version": torch.__version__,
        "lines": calls.describe(),
        "copy share": calls.copy_share,
        "copy share with exchange": calls_with_exchange.copy_share,
    }


def repeat_fake_gpu_step(case, folder):
    """Train on the CPU; return what the recorded step of a GPU copies and exchanges.

    First, two steps have the same batch. Then a step has another one, and `disable_sync` is called.
    """
    from xfbench.adapters.torch import profile

    workload, trainer = build({**case, "device": "cpu"})
    exchange = trainer.joined = mock.Mock()
    first, second = (trainer.load(*synthetic_batch(workload, 6, seed)) for seed in (0, 1))
    counts = []

    def record(work):
        exchange.reset_mock()
        copies = mock.patch.object(trainer.copier, "copy", wraps=trainer.copier.copy)
        with copies as copy:
            work()
        counts.append([copy.call_count, exchange.average.call_count])
        return profile.GpuCalls({}, {}, {}, 0, 0.25)

    with mock.patch.object(profile, "record_gpu_calls", record):
        for batch in (first, first):
            trainer.step(batch)
        trainer._gpu_kernel_and_evidence()
        trainer.step(second)
        trainer.disable_sync()
        trainer._gpu_kernel_and_evidence()
    alone = trainer.joined is None
    return {}, {"counts": counts, "alone": alone, "share": trainer.runtime_info()["gpu_copy_share"]}


def observe_fake_gpu(case, folder):
    """Train a step on the CPU; return the kernel and evidence for each thing a GPU may have run."""
    import torch

    from xfbench.adapters.torch import profile

    workload, trainer = build({**case, "device": "cpu"})
    trainer.step(trainer.load(*synthetic_batch(workload, 6, 0)))
    trainer.wait_for_loss()
    kernels = {"a kernel": 3}
    outcomes = {
        "cuDNN": profile.GpuCalls(kernels, {"a kernel": 0.5}, {"aten::cudnn_convolution": 2}, 0, 0),
        "other kernels": profile.GpuCalls(kernels, {"a kernel": 0.5}, {}, 0, 0),
        "graphs": profile.GpuCalls(kernels, {"a kernel": 0.5}, {}, 2, 0),
        "nothing": None,
    }
    outcomes["cuDNN's newer interface"] = outcomes["cuDNN"]
    trainer.device = mock.Mock(type="cuda")
    built = mock.patch.object(torch.backends.cudnn, "is_available", lambda: True)
    facts = {}
    for name, calls in outcomes.items():
        seen = mock.patch.object(profile, "record_gpu_calls", lambda work, calls=calls: calls)
        variables = {"TORCH_CUDNN_V8_API_DISABLED": "0"} if "newer" in name else {}
        with built, seen, mock.patch.dict(os.environ, variables):
            facts[name] = trainer._detect_kernel_and_evidence()
    return {}, facts


def build(case):
    """Return the case's workload and a trainer of it at the initial weights of seed 0."""
    workload = workload_from_json(case["workload"])
    module = importlib.import_module(f"xfbench.adapters.{case['framework']}.train")
    options = Options(
        case["kernel"], case["threads"], case["precision"], case["device"], dropout="identity"
    )
    trainer = module.build(workload.network, workload.solver, options, Group())
    trainer.assign(initial_parameters(workload.network, 0))
    return workload, trainer


@contextlib.contextmanager
def set_variable(variable, value):
    """Set an environment variable inside a `with` block."""
    old_value = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable)
        if old_value is not None:
            os.environ[variable] = old_value


def run_case(case):
    """Run one case and write its answer, also if it fails."""
    folder = Path(case["answer"])
    folder.mkdir()
    try:
        arrays, facts = globals()[case["action"]](case, folder)
        np.savez(str(folder / "answer.npz"), **arrays)
        text = json.dumps({"error": None, **facts})
    except Exception:
        text = json.dumps({"error": traceback.format_exc()})
    partial = folder / "answer.partial"
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / "answer.json")


if __name__ == "__main__":
    for case in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        run_case(case)
