"""Intel's extension for PyTorch 2.8.0: after load_state_dict a convolution reads its old bias.

Run with the extension's interpreter, some times: prints how far the outputs of two convolutions
are apart, one of which was loaded with the other's state.
"""

import intel_extension_for_pytorch as ipex
import torch
from torch import nn


def made(seed, bias):
    """A convolution, made ready for training by the extension."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 16, 5, bias=bias)).train()
    return ipex.optimize(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))[0]


images = torch.randn(4, 1, 28, 28)
for bias in (True, False):
    one, other = made(0, bias), made(1, bias)
    other.load_state_dict(one.state_dict())
    state = other.state_dict()
    same = all(torch.equal(value, state[name]) for name, value in one.state_dict().items())
    apart = (one(images) - other(images)).abs().max().item()
    print(f"bias {bias}: state_dict equal {same}, outputs apart by {apart:.3g}")
