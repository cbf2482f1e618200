"""Do an all-reduce with NCCL on one rank: `python nccl.py`; writes reply.json."""

import json
from pathlib import Path

import torch
import torch.distributed as dist


def main():
    if not torch.cuda.is_available():
        return {"status": "unavailable", "reason": "NCCL needs an NVIDIA device"}
    meeting = f"file://{Path('meeting').absolute()}"
    dist.init_process_group("nccl", init_method=meeting, rank=0, world_size=1)
    values = torch.arange(1000.0, device="cuda")
    dist.all_reduce(values)
    is_right = bool((values.cpu() == torch.arange(1000.0)).all())
    dist.destroy_process_group()
    version = ".".join(map(str, torch.cuda.nccl.version()))
    if not is_right:
        return {"status": "failed", "reason": f"NCCL {version}: the sum is wrong"}
    return {"status": "ok", "summary": f"NCCL {version}: the sum is right"}


Path("reply.json").write_text(json.dumps({"reason": None, **main()}))
