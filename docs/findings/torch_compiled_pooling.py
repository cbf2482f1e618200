"""Average pooling that rounds its size up, compiled by TorchInductor: what its gradient is off by.

A window that hangs over the edge has fewer values than the others. Forward it is divided by as many
as it has; the compiled gradient divides by a whole window's, if padding is counted, which
is the default, with or without any padding.
"""

import torch
from torch import nn


def gradient(pooling, x):
    """The output of pooling, and the gradient of its sum."""
    x = x.clone().requires_grad_()
    pooled = pooling(x)
    pooled.backward(torch.ones_like(pooled))
    return pooled.detach(), x.grad


print("| counting padding | output | gradient | of a window's part |")
print("| --- | --- | --- | --- |")
for counted in (True, False):
    x = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    pooling = nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=counted)
    (there, right), (seen, found) = gradient(pooling, x), gradient(torch.compile(pooling), x)
    off = [(a - b).norm().item() / b.norm().item() for a, b in ((seen, there), (found, right))]
    part = f"{found[0, 0, 3, 3]:.4f} for {right[0, 0, 3, 3]:.4f}"
    print(f"| {'yes' if counted else 'no'} | {off[0]:.1e} | {off[1]:.1e} | {part} |")
