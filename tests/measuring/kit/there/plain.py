"""Time a plain loop of a framework, written without xfbench's adapters.

`python plain.py FRAMEWORK NETWORK BATCH PRECISION MODE DEVICE STEPS` writes reply.json with images
per second. The modes of torch are eager, last (channels last), compile and graphs (compiled, with
CUDA graphs); the latter two are channels last too. JAX has the mode jit.

The loop is timed in windows of ten steps, by the wall clock and, on a GPU, by CUDA events.
"""

import json
import os
import sys
import time
from pathlib import Path

framework, network, batch_text, precision, mode, device, steps_text = sys.argv[1:8]
batch_size, steps = int(batch_text), int(steps_text)
kit = Path(os.environ["KIT"])
sys.path[:0] = [str(kit / "workers" / f"{framework}.pyz"), str(kit / "scripts")]
WARMUP, WINDOW = 10, 10


def write_reply(status, reason=None, **more):
    reply = {"status": status, "reason": reason, **more}
    Path("reply.json").write_text(json.dumps(reply))
    sys.exit(0)


def build_torch_step(workload, images, labels):
    """Return a function that does a step, and one that waits for the last loss."""
    import own_torch
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        write_reply("unavailable", f"PyTorch {torch.__version__} finds no NVIDIA device")
    if mode == "graphs" and device != "cuda":
        write_reply("unavailable", "CUDA graphs need an NVIDIA device")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    form = torch.contiguous_format if mode == "eager" else torch.channels_last
    model = own_torch.build_network(workload).to(device, memory_format=form)
    images = torch.from_numpy(images).to(device, memory_format=form)
    labels = torch.from_numpy(labels).to(device).long()
    solver = workload.solver
    options = {"momentum": solver.momentum, "weight_decay": solver.weight_decay}
    optimizer = torch.optim.SGD(model.parameters(), solver.base_lr, **options, fused=True)
    run = model
    if mode == "compile":
        run = torch.compile(model)
    if mode == "graphs":
        run = torch.compile(model, mode="reduce-overhead")
    weights = own_torch.head_weights(workload)
    criterion = torch.nn.CrossEntropyLoss()
    short = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision)
    last_loss = None

    def step():
        nonlocal last_loss
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, short, short is not None):
            heads = run(images)
            loss = sum(
                w * criterion(scores, labels) for w, scores in zip(weights, heads, strict=True)
            )
        loss.backward()
        optimizer.step()
        last_loss = loss.detach()

    return step, lambda: float(last_loss)


def build_jax_step(workload, images, labels):
    import jax
    import own_jax

    if device == "cuda" and jax.default_backend() != "gpu":
        write_reply("unavailable", f"JAX {jax.__version__} finds no NVIDIA device")
    return own_jax.build_step(workload, images, labels, precision)


def create_event():
    """Return a CUDA event that is recorded now. None on other devices and in JAX."""
    if framework != "torch" or device != "cuda":
        return None
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def main():
    from xfbench.worker.input import synthetic_batch
    from xfbench.workloads import workloads

    workload = workloads()[network]
    images, labels = synthetic_batch(workload, batch_size, 0)
    build = build_torch_step if framework == "torch" else build_jax_step
    step, wait = build(workload, images, labels)
    began = time.perf_counter()
    for _ in range(min(WARMUP, steps)):
        step()
    wait()
    ready_seconds = time.perf_counter() - began
    window = min(WINDOW, steps)
    by_clock, by_events = [], []
    for _ in range(steps // window):
        start, first = time.perf_counter(), create_event()
        for _ in range(window):
            step()
        last = create_event()
        loss = wait()
        by_clock.append((time.perf_counter() - start) / window)
        if first:
            by_events.append(first.elapsed_time(last) / 1e3 / window)
    rate = batch_size / sorted(by_clock)[len(by_clock) // 2]
    write_reply(
        "ok",
        summary=f"{rate:.0f} images/s",
        plain={
            **{"framework": framework, "network": network, "batch_size": batch_size},
            **{"precision": precision, "mode": mode, "device": device, "loss": loss},
            **{"step_seconds": by_clock, "event_seconds": by_events},
            **{"ready_seconds": ready_seconds, "images_per_second": rate},
        },
    )


main()
