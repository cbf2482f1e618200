"""Measure peaks of the device with a framework: `python peaks.py FRAMEWORK DEVICE SIZE`.

Writes reply.json: versions, the rates of products of SIZE×SIZE matrices in each precision, and the
rate of a copy, which reads and writes each byte. Each rate is the median of ten.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

framework, device, size_text = sys.argv[1:4]
size, TIMES = int(size_text), 10


def write_reply(status, reason=None, **more):
    Path("reply.json").write_text(json.dumps({"status": status, "reason": reason, **more}))
    sys.exit(0)


def median_seconds(work, wait):
    """Return the median of the seconds that `work` takes. `wait` waits for its result."""
    for _ in range(3):
        wait(work())
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        wait(work())
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[TIMES // 2]


def measure_torch():
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        write_reply("unavailable", f"PyTorch {torch.__version__} finds no NVIDIA device")
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
    versions["cudnn"] = torch.backends.cudnn.version()
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        versions |= {"device": properties.name, "sms": properties.multi_processor_count}
        versions["nccl"] = list(torch.cuda.nccl.version())

    def wait(_):
        if device == "cuda":
            torch.cuda.synchronize()

    rates = {}
    for name in ("float32", "tf32", "bfloat16", "float16", "float64"):
        if device == "cpu" and name in ("tf32", "float16"):
            continue
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        kind = torch.float32 if name == "tf32" else getattr(torch, name)
        left, right = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
        product = partial(torch.mm, left, right, out=torch.empty_like(left))
        seconds = median_seconds(product, wait)
        rates[f"{name} FLOP/s"] = 2 * size**3 / seconds
    source = torch.randn(4 * size * size, device=device)
    target = torch.empty_like(source)
    seconds = median_seconds(lambda: target.copy_(source), wait)
    rates["copy bytes/s"] = 2 * 4 * source.numel() / seconds
    return versions, rates


def measure_jax():
    import jax
    import jax.numpy as jnp

    if device == "cuda" and jax.default_backend() != "gpu":
        write_reply("unavailable", f"JAX {jax.__version__} finds no NVIDIA device")
    versions = {"jax": jax.__version__, "device": jax.devices()[0].device_kind}
    rates = {}
    products = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": None, "float16": None}
    for name, precision in products.items():
        if device == "cpu" and name in ("tf32", "float16"):
            continue
        kind = jnp.float32 if precision else jnp.dtype(name)
        left, right = (
            jax.random.normal(jax.random.key(n), (size, size)).astype(kind) for n in (0, 1)
        )
        product = jax.jit(partial(jnp.matmul, precision=precision))
        work = partial(product, left, right)
        seconds = median_seconds(work, jax.block_until_ready)
        rates[f"{name} FLOP/s"] = 2 * size**3 / seconds
    return versions, rates


versions, rates = measure_torch() if framework == "torch" else measure_jax()
figures = ", ".join(f"{name.partition(' ')[0]} {rate / 1e12:.3g}" for name, rate in rates.items())
write_reply("ok", summary=f"{figures} T/s", versions=versions, rates=rates)
