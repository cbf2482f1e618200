"""Intel's extension for PyTorch 2.8.0: after load_state_dict a convolution reads its old bias.

Run it several times with the extension's interpreter. It loads the state of one convolution into
another and prints the largest difference between their outputs.
"""

import intel_extension_for_pytorch as ipex
import torch
from torch import nn


def build_model(seed, bias):
    """Return a convolution that the extension has optimized for training."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 16, 5, bias=bias)).train()
    return ipex.optimize(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))[0]


images = torch.randn(4, 1, 28, 28)
for bias in (True, False):
    source, target = build_model(0, bias), build_model(1, bias)
    target.load_state_dict(source.state_dict())
    state = target.state_dict()
    states_equal = all(
        torch.equal(value, state[name]) for name, value in source.state_dict().items()
    )
    absolute_difference = (source(images) - target(images)).abs().max().item()
    print(
        f"bias {bias}: state_dict equal {states_equal}, outputs differ by {absolute_difference:.3g}"
    )
