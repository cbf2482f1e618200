"""Runs cases in a framework's interpreter: `PYTHON inside.py JOB`, with the worker on its path.

The answer to each lies in the folder that it names, arrays in `answer.npz` and all else in
`answer.json`, which is written last. A case that fails is answered with its traceback. Python 3.9
must be able to read this file.
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
from unittest import mock

import numpy as np

from xfbench.worker import checkpoint, feed, observe, profile
from xfbench.worker.input import data_set, synthetic_batch
from xfbench.worker.protocol import Group, Options, TrainingFiles, Unavailable
from xfbench.workloads import workload_from_json
from xfbench.workloads.initial import initial_parameters

BATCH_SIZE = 2
EPOCHS = 6
# Programs that differ, since one that was compiled before in a process is not compiled again.
COMPILED_BATCHES = {"folder 700": 2, "folder 777": 3, "link 700": 4}


def measure(trainer, workload, steps):
    """Train `steps` updates on one batch: losses, gradients and weights, by name.

    test_loss (at the initial weights), gradient/<parameter>, loss (steps,), initial/<parameter>
    and final/<parameter>; of a large network's weights the running averages alone.
    """

    def weights(moment):
        return {
            f"{moment}/{name}": value
            for name, value in trainer.parameters().items()
            if not is_large(workload) or name.endswith(("/mean", "/variance"))
        }

    initial = initial_parameters(workload.network, 0)
    trainer.assign(initial)
    batch = trainer.load(*synthetic_batch(workload, BATCH_SIZE, 0))
    found = {**weights("initial"), "test_loss": np.asarray([trainer.loss(batch)])}
    gradients = trainer.gradients(batch)
    found.update({f"gradient/{name}": value for name, value in gradients.items()})
    trainer.assign(initial)
    losses = []
    for _ in range(steps):
        trainer.step(batch)
        losses.append(trainer.synchronize())
    found["loss"] = np.asarray(losses, np.float64)
    return {**found, **weights("final")}


def is_large(workload):
    """Whether its gradients are too large to be written down for every framework."""
    return workload.network.input_shape[1] > 64


def distance(value, truth):
    """Relative distance in the norm; absolute where the truth is zero but for rounding."""
    value, truth = np.asarray(value, np.float64), np.asarray(truth, np.float64)
    size = np.linalg.norm(truth)
    difference = np.linalg.norm(value - truth)
    return float(difference / size if size > 1e-10 else difference)


def train(case, folder):
    """Measure a training, and its distances from one update's truth; a small network's arrays."""
    workload, trainer = build(case)
    found = measure(trainer, workload, case["steps"])
    distances = {}
    with np.load(case["truth"], allow_pickle=False) as truth:
        for name in truth.files:
            if name == "loss":
                distances[name] = distance(found[name][:1], truth[name])
            elif case["steps"] == 1 or not name.startswith("final/"):
                distances[name] = distance(found[name], truth[name])
    arrays = {} if is_large(workload) else found
    return arrays, {"distances": distances, "observed": trainer.runtime_info()}


def save_and_restore(case, folder):
    """Leave a training and go on from its checkpoint; what reads pickles is out of order."""
    workload = workload_from_json(case["workload"])

    def start(seed):
        _, trainer = build(case)
        trainer.assign(initial_parameters(workload.network, seed))
        return trainer

    def go_on(trainer, seeds):
        for seed in seeds:
            trainer.step(trainer.load(*synthetic_batch(workload, 4, seed)))
            trainer.synchronize()
        return checkpoint.fingerprint(trainer.parameters())

    def refuse(*_, **__):
        raise RuntimeError("a pickle was read")

    saved = folder / "checkpoint"
    saved.mkdir()
    first = start(0)
    before = go_on(first, range(3))
    weights = first.parameters()
    first.save(saved)
    end = go_on(first, range(3, 6))

    second = start(1)
    readers = ("load", "loads", "Unpickler", "_Unpickler")
    with mock.patch.multiple(pickle, **dict.fromkeys(readers, refuse)):
        second.restore(saved)
    restored = checkpoint.fingerprint(second.parameters())
    weights_alone = start(0)
    weights_alone.assign(weights)
    return {}, {
        "parameters": restored == before,
        "end": go_on(second, range(3, 6)) == end,
        "end of weights alone": go_on(weights_alone, range(3, 6)) == end,
        "averages": sum(name.endswith("/mean") for name in before),
        "bytes": checkpoint.size(saved),
        "least": checkpoint.least_bytes(workload, weights),
    }


def read(case, folder):
    """Train on what the framework's own reader gives; the images as the network reads them."""
    workload, trainer = build(case)
    module = importlib.import_module(f"xfbench.adapters.{case['framework']}.reader")
    data = data_set("set", workload, 1, 0, case["folder"]).train
    where = Path(case["folder"])
    form, size = case["format"], workload.batch_size
    files = TrainingFiles(where, form, len(data), workload, size, 1)
    reader = module.open_reader(files, Options(case["kernel"], case["threads"]))
    images, labels = [], []
    for seed in range(EPOCHS):
        for batch in reader.epoch(seed):
            trainer.step(batch)
            images.append(np.array(trainer.outputs(batch)["data"]))
            label = batch[1]
            labels.append(label.asnumpy() if hasattr(label, "asnumpy") else np.asarray(label))
    left_early = reader.epoch(0)
    next(left_early)
    left_early.close()
    compared = feed.compared(reader, data)
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line for line in maps if str(where.resolve()) in line]
    facts = {"compared": compared, "mapped": mapped, "loss": trainer.synchronize()}
    return {"images": np.array(images), "labels": np.array(labels)}, facts


def keep_busy(case, folder):
    """Train for a second; the sizes of thread pools, and how many CPUs were busy on average."""
    workload, trainer = build(case)
    batch = trainer.load(*synthetic_batch(workload, 64, 0))
    for _ in range(3):
        trainer.step(batch)
        trainer.synchronize()
    start, used = time.perf_counter(), observe.cpu_seconds()
    while time.perf_counter() - start < 1:
        trainer.step(batch)
        trainer.synchronize()
    cpus = (observe.cpu_seconds() - used) / (time.perf_counter() - start)
    return {}, {"pools": trainer.runtime_info()["pools"], "cpus": cpus}


def profile_steps(case, folder):
    """Profile a few steps with the framework's own profiler: seconds by phase and layer."""
    workload, trainer = build(case)
    batch = trainer.load(*synthetic_batch(workload, 8, 0))
    trainer.step(batch)
    trainer.synchronize()
    profiler, seconds = profile.phases(trainer, batch, time.perf_counter)
    return {}, {"profiler": profiler, "seconds": seconds}


def refuse_device(case, folder):
    """Build on a device that is not there; what the adapter says of it."""
    try:
        build(case)
    except Unavailable as error:
        return {}, {"unavailable": str(error)}
    return {}, {"unavailable": None}


def count_exported(case, folder):
    """Give Caffe the files that are exported for it; how many numbers its net then learns."""
    import caffe

    from xfbench.adapters.caffe import prototxt

    workload = workload_from_json(case["workload"])
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(prototxt.train_val(workload, 1))
    solver.write_text(prototxt.solver(workload, str(net)))
    blobs = caffe.SGDSolver(str(solver)).net.params.values()
    return {}, {"count": int(sum(blob.data.size for layer in blobs for blob in layer))}


def switch_cudnn(case, folder):
    """Build with a kernel for GPUs; how PyTorch's switches for cuDNN stand then."""
    import torch

    build(case)
    cudnn = torch.backends.cudnn
    return {}, {"switches": [cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32]}


def compile_into(case, folder):
    """Compile into a folder with the mode that the case names, or a link to one; where it went."""
    target = folder / "compiled"
    target.mkdir()
    kind, _, mode = case["data"].partition(" ")
    target.chmod(int(mode, 8))
    if kind == "link":
        target = folder / "link"
        target.symlink_to("compiled")
    with changed("TORCHINDUCTOR_CACHE_DIR", str(target)):
        workload, trainer = build(case)
        trainer.step(trainer.load(*synthetic_batch(workload, COMPILED_BATCHES[case["data"]], 0)))
        used = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        return {}, {
            "used": used == target,
            "libraries": len([*used.rglob("*.so")]),
            "left": len([*target.iterdir()]),
            "kernel": trainer.runtime_info()["kernel"],
        }


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
def changed(variable, value):
    """Set a variable of the environment for a while."""
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def answer(case):
    """Run one case, and write its answer whatever becomes of it."""
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
    for one in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        answer(one)
