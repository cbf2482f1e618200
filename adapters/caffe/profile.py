"""Layer times of Caffe, measured by timing each layer separately, as the tool `caffe time` does.

pycaffe has no profiler, but it can run the layers of a net one by one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Callable, Dict

import caffe

from xfbench.worker.profile import STEPS
from xfbench.worker.protocol import Profile


def profile(
    net: Any,
    network_layer_by_caffe_layer: Dict[str, str],
    step_seconds: float,
    clock: Callable[[], float],
) -> Profile:
    """Run both passes of every layer `STEPS` times and return the seconds of each layer.

    - `network_layer_by_caffe_layer`: name of the network's layer, by name of Caffe's layer. The
      time of a Caffe layer that is missing here is unattributed.
    - `step_seconds`: seconds of `STEPS` whole steps. This time minus the time of all layers is the
      time of the update.
    """
    forward: Dict[str, float] = defaultdict(float)
    backward: Dict[str, float] = defaultdict(float)
    names = list(net._layer_names)
    for _ in range(STEPS):
        net.clear_param_diffs()
        for number, name in enumerate(names):
            begun = clock()
            net._forward(number, number)
            forward[network_layer_by_caffe_layer.get(name, "")] += clock() - begun
        for number in reversed(range(len(names))):
            begun = clock()
            net._backward(number, number)
            backward[network_layer_by_caffe_layer.get(names[number], "")] += clock() - begun
    update = max(0.0, step_seconds - sum(forward.values()) - sum(backward.values()))
    unattributed = forward.pop("", 0.0) + backward.pop("", 0.0)
    name = f"each layer's passes of Caffe {caffe.__version__}, timed separately"
    return Profile(name, dict(forward), dict(backward), update, unattributed)
