"""Operations told by the scope that they stand in, which compilers keep for profilers.

An adapter whose network is compiled puts each layer in a scope of its own (`layer`), and the
update of its parameters in another (`update`). TensorFlow and JAX say by a scope's surroundings
what is a gradient.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Dict, Iterator, List, Sequence, Tuple

from xfbench.worker.protocol import Profile
from xfbench.workloads.layers import Network

_UPDATE = re.compile(r"xfbench\.update\.(\d+)")
_LAYER = re.compile(r"xfbench\.layer\.(\d+)")
_GRADIENT = ("gradient_tape/", "transpose(")  # of TensorFlow, of JAX
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.-]+) = ")
_NAMED = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"\bcalls=%?([\w.-]+)")
_OPERAND = re.compile(r"%([\w.-]+)")


def layer(number: int) -> str:
    """The scope of a network's layer, by its place."""
    return f"xfbench.layer.{number}"


def update(number: int) -> str:
    """The scope in which that layer's parameters are changed."""
    return f"xfbench.update.{number}"


def places(network: Network) -> Dict[str, int]:
    """The place of each parameter's layer, by the parameter's name."""
    found = {one.name: number for number, one in enumerate(network.layers)}
    return {name: found[name.rpartition("/")[0]] for name in network.parameters}


def place(scope: str) -> int | None:
    """The place of the layer whose scope it is, or has in it."""
    found = _LAYER.search(scope)
    return int(found[1]) if found else None


class Seconds:
    """Adds up what operations took, by their scopes, for layers with these names in order."""

    def __init__(self, layers: Sequence[str]) -> None:
        self.layers = layers
        self.forward: Dict[str, float] = defaultdict(float)
        self.backward: Dict[str, float] = defaultdict(float)
        self.update = self.unattributed = 0.0

    def add(self, scope: str, seconds: float) -> None:
        number = place(scope)
        if number is not None:
            gradient = any(word in scope for word in _GRADIENT)
            (self.backward if gradient else self.forward)[self.layers[number]] += seconds
        elif _UPDATE.search(scope):
            self.update += seconds
        else:
            self.unattributed += seconds

    def profile(self, profiler: str) -> Profile:
        return Profile(
            profiler, dict(self.forward), dict(self.backward), self.update, self.unattributed
        )


def of_program(text: str) -> Dict[str, str]:
    """The scope of each instruction of a program that XLA compiled, from its text.

    One that joins several has that of the last of them. What XLA has made anew has lost its own:
    it is for whoever reads it, and where that is an update, it is the layer's gradient.
    """
    own: Dict[str, str] = {}
    inside: Dict[str, str] = {}  # by computation, its last instruction's that has any
    unknown: List[Tuple[str, str]] = []
    reads: Dict[str, List[str]] = {}
    for computation, name, line in _instructions(text):
        named = _NAMED.search(line)
        if named and _is_ours(named[1]):
            own[name] = inside[computation] = named[1]
        else:
            unknown.append((name, line))
        reads[name] = _OPERAND.findall(line.partition(" = ")[2])
    for name, line in unknown:
        called = _CALLED.search(line)
        if called and called[1] in inside:
            own[name] = inside[called[1]]
    for name in reversed(list(reads)):
        for operand in reads[name] if name in own else ():
            own.setdefault(operand, _read_by(own[name]))
    return own


def _read_by(scope: str) -> str:
    """The scope of what is made for an operation of this one."""
    found = _UPDATE.search(scope)
    return f"{_GRADIENT[1]}{layer(int(found[1]))})" if found else scope


def _is_ours(scope: str) -> bool:
    return bool(_LAYER.search(scope) or _UPDATE.search(scope))


def _instructions(text: str) -> Iterator[Tuple[str, str, str]]:
    """Each with its computation and its name, in order."""
    computation = ""
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        if found:
            yield computation, found[2], line
        else:
            header = _COMPUTATION.match(line)
            computation = header[1] if header else computation
