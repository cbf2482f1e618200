"""Layer times of TensorFlow, measured by its profiler, which times each operation.

For an operation that TensorFlow's executor runs, the profiler reports the scope and the kind. The
scope shows the layer. For an operation that XLA runs, the profiler reports only the name of an
instruction. The text of the compiled program shows the scope of the instruction.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Iterator, Tuple

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from xfbench.worker import scopes
from xfbench.worker.protocol import Profile
from xfbench.workloads import layers as xl

_PICOSECOND = 1e-12


def profile(
    network: xl.Network, run_steps: Callable[[], float], get_program_text: Callable[[], str] | None
) -> Profile:
    """Run `run_steps` under TensorFlow's profiler and return the seconds of each layer.

    `get_program_text` returns the text of the program that XLA compiled for the steps. It is None
    if XLA does not compile them.
    """
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
    with TemporaryDirectory(prefix="xfbench-profile-") as folder:
        tf.profiler.experimental.start(folder, options)
        try:
            run_steps()
        finally:
            tf.profiler.experimental.stop()
        [file] = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    layer_seconds = scopes.ScopeSeconds([layer.name for layer in network.layers])
    if get_program_text:
        of = scopes.scope_by_instruction(get_program_text())
        for operation, seconds in _xla_instruction_times(space):
            layer_seconds.add(of.get(operation, ""), seconds)
    else:
        for scope, kind, seconds in _executor_operations(space):
            layer_seconds.add(_correct_scope_if_fused(network, scope, kind), seconds)
    return layer_seconds.profile(f"tf.profiler of TensorFlow {tf.__version__}")


def _executor_operations(space: Any) -> Iterator[Tuple[str, str, float]]:
    """Yield (scope, kind, seconds) of each operation that TensorFlow's executor ran.

    The scope is the operation's full name, which contains the scope of the layer. The kind is the
    operation's type, such as "Conv2D".
    """
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                metadata = plane.event_metadata[event.metadata_id]
                scope, colon, kind = metadata.name.rpartition(":")
                # The time of a function call includes the operations of the function.
                if colon and metadata.display_name == kind and not kind.startswith("__inference"):
                    yield scope, kind, _PICOSECOND * event.duration_ps


def _xla_instruction_times(space: Any) -> Iterator[Tuple[str, float]]:
    """Yield (instruction name, seconds) of each operation that XLA ran.

    The compiled program contains an instruction with this name.
    """
    for plane in space.planes:
        names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                for stat in event.stats:
                    if names[stat.metadata_id] == "hlo_op":
                        operation = stat.str_value or names[stat.ref_value]
                        yield operation, _PICOSECOND * event.duration_ps


def _correct_scope_if_fused(network: xl.Network, scope: str, kind: str) -> str:
    """Return the scope of the layer to which an operation's time belongs.

    TensorFlow may fuse an operation with the ReLU that follows it. The fused operation has the
    scope of the ReLU, but its time belongs to the layer before the ReLU. For any other operation,
    return `scope`.
    """
    place = scopes.layer_index_of_scope(scope)
    if place is None or "Fused" not in kind or not isinstance(network.layers[place], xl.ReLU):
        return scope
    names = [layer.name for layer in network.layers]
    return scopes.layer_scope(names.index(network.layers[place].inputs[0]))
