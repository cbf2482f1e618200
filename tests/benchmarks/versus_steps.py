"""Steps of the adapter and of loops as a framework's users write them, in turn, in one process.

`python versus_steps.py WORKER FRAMEWORK KERNEL KERNELS OWN NETWORK ROUNDS BATCH_SIZE THREADS
OWN_FIRST NEAREST STRATEGY OPTIONS`, in the framework's interpreter, which KERNEL has set up,
on one rank or on several, which the strategy joins. KERNELS are those of the adapter, between
commas, or nothing; OWN names one of the framework's own loops, or is "all" or "none". OWN_FIRST, 0
or 1: which are made first. Rounds during which cores lay apart are done again; near, they take
NEAREST seconds or less to reach each other. OPTIONS is JSON. The first rank prints JSON: seconds of
each step by name, those of the adapter by its kernel.
"""

import gc
import importlib
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

WAITS, WAIT_SECONDS = 120, 0.5


def main() -> None:
    archive, framework, _, kernels, named, *counts, nearest, strategy, chosen = sys.argv[1:]
    network = counts.pop(0)
    rounds, batch_size, threads, own_first = map(int, counts)
    sys.path.insert(0, archive)
    from xfbench.worker import affinity, distributed, handover
    from xfbench.worker.input import synthetic_batch
    from xfbench.worker.protocol import Group, Options
    from xfbench.workloads import workloads
    from xfbench.workloads.initial import initial_parameters

    # Weights that hardly move: what diverges may be slower, and end Caffe (docs/findings.md).
    known = workloads()[network]
    workload = replace(known, solver=replace(known.solver, base_lr=1e-9, policy="fixed"))
    rank, size = distributed.place()
    group = Group()
    if size > 1:
        distributed.name_addresses(remote=False)
        affinity.settle(rank, size, threads, 0)
        meeting = str(Path("meeting").absolute())
        group = Group(rank, size, strategy, meeting, options=json.loads(chosen))
    cores = handover.Cores() if size == 1 else None  # before the framework, as in a launch
    images, labels = synthetic_batch(workload, batch_size, rank)
    train = importlib.import_module(f"xfbench.adapters.{framework}.train")
    own = importlib.import_module(f"own_{framework}")
    initial = initial_parameters(workload.network, 0)

    def through(kernel: str):
        trainer = train.build(workload.network, workload.solver, Options(kernel, threads), group)
        trainer.assign(initial)
        batch = trainer.load(images, labels)

        def step() -> None:
            trainer.step(batch)
            trainer.synchronize()

        return step

    def ours() -> dict:
        return {kernel: through(kernel) for kernel in kernels.split(",") if kernel}

    def theirs() -> dict:
        if named == "none":
            return {}
        loops = own.loops(workload, images, labels, threads, group)
        return loops if named == "all" else {named: loops[named]}

    # On several ranks the adapter's trainer is what meets the others.
    made = [one() for one in ((theirs, ours) if own_first and size == 1 else (ours, theirs))]
    steps = {name: step for one in made for name, step in one.items()}
    order = random.Random(own_first)

    def once() -> dict:
        took = {}
        for name in order.sample(list(steps), len(steps)):
            start = time.perf_counter()
            steps[name]()
            took[name] = time.perf_counter() - start
        return took

    for _ in range(2):
        once()
    if cores:
        taken = while_near(once, rounds, float(nearest), cores)
    else:
        taken = [once() for _ in range(rounds)]
    if not rank:
        print(json.dumps({name: [took[name] for took in taken] for name in steps}))


def while_near(once, rounds: int, nearest: float, cores) -> list:
    """So many rounds during which cores lay as near as in any; all, where they rarely do.

    One of them costs half a loop's speed while they do not (docs/findings.md#two-modes), so that
    it waits for them: a minute at most, all together.
    """
    from xfbench.worker import distance

    looks: list[float] = []

    def look() -> float:
        looks.append(cores.seconds() or float("inf"))  # where they were too busy to answer
        return looks[-1]

    def apart(seconds: float) -> bool:
        return distance.apart([seconds], min(nearest, distance.nearest(looks)))

    seen, taken, waits = look(), [], 0
    for _ in range(3 * rounds):
        while apart(seen) and waits < WAITS:
            time.sleep(WAIT_SECONDS)
            seen, waits = look(), waits + 1
        took, before, seen = once(), seen, look()
        taken.append((max(before, seen), took))
        near = [took for far, took in taken if not apart(far)]
        if len(near) >= rounds:
            return near
    return [took for _, took in taken]


if __name__ == "__main__":
    main()
    gc.collect()  # what joins ranks goes before the threads that it is joined by
