"""Layer times of MXNet, measured by its profiler, which times each operation.

The profiler records the time and the kind of each operation, but not its layer. A hook of Gluon's
block records the kind and the layer. The hook waits until the operation has ended. Therefore the
profiler and the hook list the operations in the same order, and the two lists can be matched.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, List, Tuple

import mxnet as mx

from xfbench.worker.protocol import Profile

MARK = "::"  # separates the layer's name from the rest of an operation's name
_BACKWARD = "_backward"
_UPDATES = ("sgd", "mom_update", "lars", "sum_sq")
_MICROSECOND = 1e-6
_NEAR = 25  # how many events ahead the next operation is searched

Node = Tuple[str, str]


def profile(
    block: Any, run_first_step: Callable[[], None], run_steps: Callable[[], float]
) -> Profile:
    """Run `run_steps` under MXNet's profiler and return the seconds of each layer of `block`.

    - `block`: a block that runs its operations one by one.
    - `run_first_step`: runs one step before the profiler starts. In this step, MXNet sets up the
      block.
    """
    nodes: List[Node] = []
    block.register_op_hook(
        lambda name, kind, _: _wait_and_record_operation(nodes, name.decode(), kind.decode())
    )
    run_first_step()
    nodes.clear()
    with TemporaryDirectory(prefix="xfbench-profile-") as folder:
        file = Path(folder, "profile.json")
        mx.profiler.set_config(filename=str(file), profile_symbolic=True, profile_imperative=True)
        mx.profiler.set_state("run")
        try:
            run_steps()
        finally:
            mx.profiler.set_state("stop")
        mx.profiler.dump()
        operation_times = _operation_times(json.loads(file.read_bytes()))
    return _sum_by_layer(operation_times, nodes)


def _wait_and_record_operation(nodes: List[Node], output_name: str, kind: str) -> None:
    """Wait for MXNet, then append to `nodes` the (name, kind) of the operation that has run.

    Gluon calls this function for each output of an operation, one call directly after the other.
    Only the first of these calls appends the operation. `output_name` is the operation's name and a
    suffix.
    """
    mx.nd.waitall()
    node = output_name.rpartition("_")[0], kind
    if not nodes or nodes[-1] != node:
        nodes.append(node)


def _operation_times(trace: Dict[str, Any]) -> List[Tuple[str, float]]:
    """Return (kind, seconds) of each operation, ordered by start time."""
    begun: Dict[Tuple[Any, str], float] = {}
    operations = []
    events = [event for event in trace["traceEvents"] if event["ph"] in ("B", "E")]
    for event in sorted(events, key=lambda event: event["ts"]):
        key = event["tid"], event["name"]
        if event["ph"] == "B":
            begun[key] = event["ts"]
        elif key in begun:
            start = begun.pop(key)
            operations.append((start, event["name"], _MICROSECOND * (event["ts"] - start)))
    return [(kind, seconds) for _, kind, seconds in sorted(operations)]


def _sum_by_layer(operation_times: List[Tuple[str, float]], nodes: List[Node]) -> Profile:
    kinds = {kind for _, kind in nodes}
    positions = [number for number, (kind, _) in enumerate(operation_times) if kind in kinds]
    of: Dict[int, str] = {}
    place = 0
    for name, kind in nodes:
        near = range(place, min(place + _NEAR, len(positions)))
        nearest = next((n for n in near if operation_times[positions[n]][0] == kind), None)
        if nearest is not None:
            of[positions[nearest]] = name
            place = nearest + 1
    forward: Dict[str, float] = defaultdict(float)
    backward: Dict[str, float] = defaultdict(float)
    update = unattributed = 0.0
    for number, (kind, seconds) in enumerate(operation_times):
        layer, mark, operation = of.get(number, "").partition(MARK)
        if mark:
            gradient = kind.startswith(_BACKWARD) or operation.endswith(_BACKWARD)
            (backward if gradient else forward)[layer] += seconds
        elif any(word in kind for word in _UPDATES):
            update += seconds
        else:
            unattributed += seconds
    name = f"mx.profiler of MXNet {mx.__version__}"
    return Profile(name, dict(forward), dict(backward), update, unattributed)
