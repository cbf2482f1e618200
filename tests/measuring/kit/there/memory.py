"""Find the largest batch of a network that fits: `python memory.py NETWORK KERNEL PRECISION`.

It doubles the batch until PyTorch is out of memory, and writes reply.json.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["KIT"], "workers", "torch.pyz")))
FIRST, LAST = 64, 2**13


def main(network, kernel, precision):
    import torch

    from xfbench.adapters.torch import train
    from xfbench.worker.protocol import Group, Options, Unavailable
    from xfbench.workloads import workloads

    workload = workloads()[network]
    options = Options(kernel=kernel, threads=4, precision=precision, device="cuda")
    peaks, batch_size = {}, FIRST
    try:
        trainer = train.build(workload.network, workload.solver, options, Group())
        while batch_size <= LAST:
            shape = (batch_size, *workload.network.input_shape)
            images = torch.zeros(shape).numpy()
            batch = trainer.load(images, torch.zeros(batch_size, dtype=torch.int64).numpy())
            torch.cuda.reset_peak_memory_stats()
            trainer.step(batch)
            trainer.wait_for_loss()
            peaks[batch_size] = torch.cuda.max_memory_allocated()
            batch_size *= 2
    except Unavailable as error:
        return {"status": "unavailable", "reason": str(error)}
    except torch.cuda.OutOfMemoryError as error:
        reason = str(error).split("\n")[0]
        largest = max(peaks, default=0)
        summary = f"{largest} images fit, {batch_size} do not"
        return {"status": "ok", "summary": summary, "peak_bytes": peaks, "error": reason}
    return {"status": "ok", "summary": f"{LAST} images fit", "peak_bytes": peaks}


Path("reply.json").write_text(json.dumps({"reason": None, **main(*sys.argv[1:4])}))
