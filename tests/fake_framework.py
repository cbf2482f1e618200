"""Adapters of the fake framework (`fake_trainer`), and launches with it."""

import json
import textwrap
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.fake_peaks import build_peaks
from tests.remaining_processes import list_running
from xfbench.base import atomic_files, paths
from xfbench.base.processes import Outcome
from xfbench.environments import environment
from xfbench.execution import canary, job, record_builder
from xfbench.execution.launch import LaunchContext
from xfbench.host import core_latency, roofline
from xfbench.model.adapter import load
from xfbench.model.request import Cell
from xfbench.session import Session
from xfbench.store.results_folder import Store

STRATEGY = "side by side"
TWO_RANKS = {"ranks": 2, "strategy": STRATEGY, "scaling": "weak", "global_batch_size": 8}
DESCRIPTION = {
    "module": "numpy",
    "devices": ["cpu"],
    "precisions": ["float32"],
    "strategies": ["none", STRATEGY],
    "default_kernel": "plain",
    "environment": {"kind": "own"},
    "kernels": {"plain": {"title": "plain"}},
}
# Measuring core-to-core latency takes a second or two on a busy machine.
NO_LOOKS = (
    "from xfbench.worker import core_latency\n"
    "core_latency.CoreLatencyProbe.seconds = lambda self: None\n"
)
# Ways for a rank to end in a step: its code, and the status and reason of the record.
DEATHS = {
    "by a signal": ("os.kill(os.getpid(), 9)", "crashed", "ended by SIGKILL"),
    "with a status": ("os._exit(7)", "crashed", "exit status 7"),
    "with words": ("raise RuntimeError('no more memory')", "failed", "no more memory"),
}
SLOW = "def after_step(rank, steps): time.sleep(0.5)\n"


def death_code(rank, death):
    """Return lines that end `rank` in its third step, while the other ranks hang."""
    return f"""
        def after_step(rank, steps):
            if steps == 3:
                if rank == {rank}:
                    {DEATHS[death][0]}
                time.sleep(600)
        """


def write(folder, body="", files=None, **description):
    """Write an adapter to `folder`: the fake trainer and then `body`, and more `files` by name.

    `description` replaces keys of its adapter.toml.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train_code = (Path(__file__).parent / "fake_trainer.py").read_text()
    train_code += f"\n\nEXPECTED_LOSS = {expected_loss()}\n{NO_LOOKS}{textwrap.dedent(body)}\n"
    description = {"name": folder.name, "title": folder.name, **DESCRIPTION, **description}
    lines = [f"{key} = {_to_toml(value)}\n" for key, value in description.items()]
    contents = {"train.py": train_code, "adapter.toml": "".join(lines)}
    for name, text in {**contents, **(files or {})}.items():
        (folder / name).write_text(text)
    return folder


def _to_toml(value):
    if isinstance(value, dict):
        pairs = [f"{json.dumps(key)} = {_to_toml(member)}" for key, member in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    return f"[{', '.join(map(_to_toml, value))}]" if isinstance(value, list) else json.dumps(value)


@cache
def expected_loss():
    """Return the reference's loss for `cell`."""
    return canary.compute_expected_loss_before_training("lenet", "synthetic", 4, 0, "float32").loss


@cache
def own_environment():
    """Return the environment of the fake framework, without a process for each launch."""
    return replace(environment.ensure_environment(load("reference")), framework="odd")


def make_cache(folder):
    """Write a cache with the known canaries and with peaks that no launch exceeds."""
    canaries = paths.cache() / "canary"
    folder.mkdir()
    (folder / "canary").symlink_to(canaries)
    write_peaks(folder)
    return folder


def write_peaks(cache):
    """Write peaks that no launch exceeds into a cache that has none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XFBENCH_HOME", str(cache))
        for threads, peak in build_peaks().items():
            file = roofline._peaks_file(threads)
            atomic_files.write(file, json.dumps(peak).encode())
            assert roofline._read_cached_peaks(file) == peak


def cell(**fields):
    """Return a cell of the reference with these fields."""
    defaults = {
        "framework": "reference",
        "environment": "own",
        "workload": "lenet",
        "kernel": "numpy",
        "threads": 1,
        "global_batch_size": 4,
        "batch_size_per_rank": 4,
        "data": "synthetic",
        "steps": 3,
        "warmup": 1,
    }
    return Cell(**{**defaults, **fields})


def launch(
    root, body="", *, adapter=None, time_limit=60.0, strict=False, checkpoint_dir=None, **request
):
    """Launch the fake framework once; return the record and its run folder.

    `adapter` are arguments of `write`. Raises AssertionError if a process is left running.
    """
    write(root / "adapters" / "odd", body, **(adapter or {}))
    store = Store(root / "results")
    context = LaunchContext(
        store,
        {"odd": own_environment()},
        time_limit=time_limit,
        strict=strict,
        checkpoint_dir=checkpoint_dir,
    )
    launch_cell = cell(**{"framework": "odd", "kernel": "plain", **request})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XFBENCH_ADAPTERS", str(root / "adapters"))
        patch.setattr(core_latency, "measure_core_latency_s", lambda: None)
        patch.setattr(roofline, "_PEAKS", build_peaks())
        [record] = Session(context).launch([launch_cell.request(1)])
        assert list_running(root) == []
        assert list(store.records()) == [record]
    return record, store.run_folder(record)


def judge_changed_reply(folder, launch, change, strict=False, **fields):
    """Return the record of a launch after `change` of its last rank's reply.

    `folder` is for the replies. `fields` replace fields of the record, such as `limit`.
    """
    record, run_folder = launch
    names = ["reply.json", "reply.1.json"][: record.request.ranks]
    replies = [json.loads((run_folder / name).read_text()) for name in names]
    change(replies[-1])
    for name, reply in zip(names, replies, strict=True):
        (folder / name).write_text(json.dumps(reply))
    answer = job.read_and_merge_replies(folder, replies[0]["job"], record.request, Outcome(0), 1.0)
    facts = {name: getattr(record, name) for name in ("workload", "machine", "limit", "conditions")}
    adapter_and_environment = load("odd"), own_environment()
    return record_builder.build_record(
        record.request, answer, *adapter_and_environment, facts | fields, strict
    )
