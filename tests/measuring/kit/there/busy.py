"""Use the GPU until the process is ended, as another user would: `python busy.py`."""

import torch

if torch.cuda.is_available():
    matrix = torch.randn(4096, 4096, device="cuda")
    while True:
        matrix = (matrix @ matrix).clamp(-1, 1)
        torch.cuda.synchronize()
