"""The error of the weight gradient of a strided 1x1 convolution with channels last.

If the input has fewer channels than a vector register has elements, oneDNN writes outside its
memory. Each number of channels runs in a separate process because some of them crash.
"""

import subprocess
import sys

import torch
from torch.nn import functional

RUNS = 300


def largest_error(channels, threads, memory_format):
    """Return the largest relative error of the weight gradient against float64 in RUNS runs."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(4, channels, 14, 14, generator=generator)
    weight = torch.randn(2, channels, 1, 1, generator=generator)

    def gradient(dtype, memory_format):
        x = images.to(dtype).contiguous(memory_format=memory_format)
        w = weight.to(dtype, copy=True, memory_format=memory_format).requires_grad_()
        functional.conv2d(x, w, stride=2).sum().backward()
        return w.grad.double()

    expected = gradient(torch.float64, torch.contiguous_format)
    gradients = [gradient(torch.float32, memory_format) for _ in range(RUNS)]
    return max(float((g - expected).norm() / expected.norm()) for g in gradients)


if len(sys.argv) > 1:
    channels, threads, name = sys.argv[1:]
    print(f"{largest_error(int(channels), int(threads), getattr(torch, name)):.1e}")
else:
    print("| input channels | channels first | channels last | channels last, two threads |")
    print("| --- | --- | --- | --- |")
    for channels in ("1", "3", "4", "5", "8", "16"):
        cells = []
        for arguments in (
            ("1", "contiguous_format"),
            ("1", "channels_last"),
            ("2", "channels_last"),
        ):
            command = [sys.executable, __file__, channels, *arguments]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            cells.append(process.stdout.strip() if process.returncode == 0 else "crash")
        print(f"| {channels} | {' | '.join(cells)} |")
