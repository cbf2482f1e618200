"""What the text of a program that XLA compiled says about the kernels that it calls."""

from __future__ import annotations

import re
from collections import Counter
from typing import List

_PLAIN_OPERATIONS = ("convolution", "dot", "fusion")
_LIBRARY_CALL = re.compile(r'custom_call_target="([^"]+)"')
_CUSTOM_FUSION = re.compile(r'"kind":\s*"(__[^"]+)"')  # of Triton or cuDNN, for example
_CUDNN_CONVOLUTION = "__cudnn$conv"
_ENGINE, _MATH = re.compile(r'"algo_id":\s*"?(\d+)'), re.compile(r'"math_type":\s*"(\w+)"')


def describe_kernels(text: str) -> List[str]:
    """Return sentences about the kernels of a training step. `text` is XLA's optimised program.

    The first sentence counts operations, library calls and fusions with code of their own. If cuDNN
    computes convolutions, the second one counts the engines that XLA chose, with their kind of
    arithmetic.
    """
    plain: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    engines: Counter[str] = Counter()
    for line in text.splitlines():
        plain.update(name for name in _PLAIN_OPERATIONS if f" {name}(" in line)
        names = [*_LIBRARY_CALL.findall(line), *_CUSTOM_FUSION.findall(line)]
        calls.update(names)
        engine, math = _ENGINE.search(line), _MATH.search(line)
        if engine and any(name.startswith(_CUDNN_CONVOLUTION) for name in names):
            engines[f"{engine[1]} ({math[1] if math else 'default'})"] += 1
    contents = [_list_counts(counts) for counts in (plain, calls) if counts]
    sentences = [f"the step that XLA compiled contains {', '.join(contents)}"]
    if engines:
        sentences.append(f"engines of cuDNN's convolutions: {_list_counts(engines)}")
    return sentences


def _list_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in sorted(counts.items()))
