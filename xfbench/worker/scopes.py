"""Scope names, which show to which layer an operation of a compiled network belongs.

Compilers keep the names of scopes for profilers. An adapter puts each layer in a scope
(`layer_scope`), and the update of each layer's parameters in another scope (`update_scope`).
TensorFlow and JAX add a word to the scope name of an operation that computes gradients.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Dict, Iterator, List, Sequence, Tuple

from xfbench.worker.protocol import Profile
from xfbench.workloads.layers import Network

_UPDATE = re.compile(r"xfbench\.update\.(\d+)")
_LAYER = re.compile(r"xfbench\.layer\.(\d+)")
_GRADIENT = ("gradient_tape/", "transpose(")  # the words of TensorFlow and of JAX
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.-]+) = ")
_NAMED = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"\bcalls=%?([\w.-]+)")
_OPERAND = re.compile(r"%([\w.-]+)")


def layer_scope(number: int) -> str:
    """Return the scope name of the layer with index `number` in the network."""
    return f"xfbench.layer.{number}"


def update_scope(number: int) -> str:
    """Return the scope name for updating the parameters of the layer with index `number`."""
    return f"xfbench.update.{number}"


def layer_index_by_parameter(network: Network) -> Dict[str, int]:
    """Return the index of the layer of each parameter, by parameter name."""
    index_by_layer = {
        network_layer.name: number for number, network_layer in enumerate(network.layers)
    }
    return {name: index_by_layer[name.rpartition("/")[0]] for name in network.parameters}


def layer_index_of_scope(scope: str) -> int | None:
    """Return the index of the layer whose scope occurs in `scope`. None if there is none."""
    match = _LAYER.search(scope)
    return int(match[1]) if match else None


class ScopeSeconds:
    """The seconds of a network's operations, summed by layer.

    `layers` are the names of all layers, in the network's order.
    """

    def __init__(self, layers: Sequence[str]) -> None:
        self.layers = layers
        self.forward: Dict[str, float] = defaultdict(float)
        self.backward: Dict[str, float] = defaultdict(float)
        self.update = self.unattributed = 0.0

    def add(self, scope: str, seconds: float) -> None:
        """Add the seconds of an operation in `scope`."""
        number = layer_index_of_scope(scope)
        if number is not None:
            gradient = any(word in scope for word in _GRADIENT)
            (self.backward if gradient else self.forward)[self.layers[number]] += seconds
        elif _UPDATE.search(scope):
            self.update += seconds
        else:
            self.unattributed += seconds

    def profile(self, profiler: str) -> Profile:
        """Return the sums as a profile. `profiler` is the profiler's name."""
        return Profile(
            profiler, dict(self.forward), dict(self.backward), self.update, self.unattributed
        )


def scope_by_instruction(program_text: str) -> Dict[str, str]:
    """Return the scope of each instruction in a program compiled by XLA, by instruction name.

    - `program_text`: the compiled program in XLA's text format.

    A fused instruction has the scope of the last operation in it. An instruction created by XLA has
    the scope of the instruction that reads its result. If the reading instruction is an update, the
    created instruction has the gradient scope of the updated layer.
    """
    scopes: Dict[str, str] = {}
    inside: Dict[str, str] = {}  # the scope of each computation's last instruction with a scope
    unknown: List[Tuple[str, str]] = []
    reads: Dict[str, List[str]] = {}
    for computation, name, line in _instructions_with_computation(program_text):
        named = _NAMED.search(line)
        if named and _is_layer_or_update_scope(named[1]):
            scopes[name] = inside[computation] = named[1]
        else:
            unknown.append((name, line))
        reads[name] = _OPERAND.findall(line.partition(" = ")[2])
    for name, line in unknown:
        called = _CALLED.search(line)
        if called and called[1] in inside:
            scopes[name] = inside[called[1]]
    for name in reversed(list(reads)):
        for operand in reads[name] if name in scopes else ():
            scopes.setdefault(operand, _scope_of_operand_producer(scopes[name]))
    return scopes


def _scope_of_operand_producer(reader_scope: str) -> str:
    """Return the scope for an instruction whose result is read by an instruction with a scope.

    `reader_scope` is the scope of the reading instruction. If it is the scope of an update, the
    result is the gradient scope of the updated layer. Otherwise the result is `reader_scope`.
    """
    match = _UPDATE.search(reader_scope)
    return f"{_GRADIENT[1]}{layer_scope(int(match[1]))})" if match else reader_scope


def _is_layer_or_update_scope(scope: str) -> bool:
    return bool(_LAYER.search(scope) or _UPDATE.search(scope))


def _instructions_with_computation(program_text: str) -> Iterator[Tuple[str, str, str]]:
    """Yield (computation's name, instruction's name, line) for each instruction, in order."""
    computation = ""
    for line in program_text.splitlines():
        match = _INSTRUCTION.match(line)
        if match:
            yield computation, match[2], line
        else:
            header = _COMPUTATION.match(line)
            computation = header[1] if header else computation
