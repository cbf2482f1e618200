"""The error of the gradient of average pooling with ceil_mode, compiled by TorchInductor.

A window that extends over the edge has fewer values than the others. The forward pass divides by
that number. If count_include_pad is set, which is the default, the compiled gradient divides by the
size of a whole window, even without padding.
"""

import torch
from torch import nn


def output_and_gradient(pooling, x):
    """Return the output of pooling and the gradient of its sum."""
    x = x.clone().requires_grad_()
    pooled = pooling(x)
    pooled.backward(torch.ones_like(pooled))
    return pooled.detach(), x.grad


print("| counting padding | output | gradient | of a window's part |")
print("| --- | --- | --- | --- |")
for counted in (True, False):
    x = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    pooling = nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=counted)
    (eager_output, eager_gradient), (output, gradient) = (
        output_and_gradient(pooling, x),
        output_and_gradient(torch.compile(pooling), x),
    )
    errors = [
        (a - b).norm().item() / b.norm().item()
        for a, b in ((output, eager_output), (gradient, eager_gradient))
    ]
    corner = f"{gradient[0, 0, 3, 3]:.4f} for {eager_gradient[0, 0, 3, 3]:.4f}"
    print(f"| {'yes' if counted else 'no'} | {errors[0]:.1e} | {errors[1]:.1e} | {corner} |")
