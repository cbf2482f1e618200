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
    archive, framework, _, kernels, native_loop_name, *counts, nearest, strategy, options_json = (
        sys.argv[1:]
    )
    network = counts.pop(0)
    rounds, batch_size, threads, own_first = map(int, counts)
    sys.path.insert(0, archive)
    from xfbench.worker import affinity, core_latency, distributed
    from xfbench.worker.input import synthetic_batch
    from xfbench.worker.protocol import Group, Options
    from xfbench.workloads import workloads
    from xfbench.workloads.initial import initial_parameters

    # Weights that hardly move: what diverges may be slower, and end Caffe (docs/findings.md).
    standard_workload = workloads()[network]
    workload = replace(
        standard_workload, solver=replace(standard_workload.solver, base_lr=1e-9, policy="fixed")
    )
    rank, size = distributed.rank_and_size()
    group = Group()
    if size > 1:
        distributed.replace_address_placeholders_in_env(remote=False)
        affinity.pin_rank("cores", rank, size, threads, 0)
        rendezvous_path = str(Path("meeting").absolute())
        group = Group(rank, size, strategy, rendezvous_path, options=json.loads(options_json))
    cores = (
        core_latency.CoreLatencyProbe() if size == 1 else None
    )  # before the framework, as in a launch
    images, labels = synthetic_batch(workload, batch_size, rank)
    train = importlib.import_module(f"xfbench.adapters.{framework}.train")
    native_module = importlib.import_module(f"own_{framework}")
    initial = initial_parameters(workload.network, 0)

    def build_adapter_step(kernel: str):
        trainer = train.build(workload.network, workload.solver, Options(kernel, threads), group)
        trainer.assign(initial)
        batch = trainer.load(images, labels)

        def step() -> None:
            trainer.step(batch)
            trainer.wait_for_loss()

        return step

    def build_adapter_steps() -> dict:
        return {kernel: build_adapter_step(kernel) for kernel in kernels.split(",") if kernel}

    def build_native_steps() -> dict:
        if native_loop_name == "none":
            return {}
        loops = native_module.loops(workload, images, labels, threads, group)
        return loops if native_loop_name == "all" else {native_loop_name: loops[native_loop_name]}

    # On several ranks the adapter's trainer is what meets the others.
    step_groups = [
        build_steps()
        for build_steps in (
            (build_native_steps, build_adapter_steps)
            if own_first and size == 1
            else (build_adapter_steps, build_native_steps)
        )
    ]
    steps = {name: step for step_group in step_groups for name, step in step_group.items()}
    order = random.Random(own_first)

    def time_round() -> dict:
        step_times = {}
        for name in order.sample(list(steps), len(steps)):
            start = time.perf_counter()
            steps[name]()
            step_times[name] = time.perf_counter() - start
        return step_times

    for _ in range(2):
        time_round()
    if cores:
        rounds_times = measure_while_near(time_round, rounds, float(nearest), cores)
    else:
        rounds_times = [time_round() for _ in range(rounds)]
    if not rank:
        print(
            json.dumps(
                {name: [round_times[name] for round_times in rounds_times] for name in steps}
            )
        )


def measure_while_near(time_round, rounds: int, nearest: float, cores) -> list:
    """So many rounds during which cores lay as near as in any; all, where they rarely do.

    One of them costs half a loop's speed while they do not (docs/findings.md#two-modes), so that
    it waits for them: a minute at most, all together.
    """
    from xfbench.worker.core_latency import has_far_core_latency, near_cores_latency_seconds

    latencies_s: list[float] = []

    def measure_latency() -> float:
        latencies_s.append(
            cores.measure_round_trip_seconds() or float("inf")
        )  # where they were too busy to answer
        return latencies_s[-1]

    def is_far(seconds: float) -> bool:
        return has_far_core_latency(
            [seconds], min(nearest, near_cores_latency_seconds(latencies_s))
        )

    latency_s, timed_rounds, waits = measure_latency(), [], 0
    for _ in range(3 * rounds):
        while is_far(latency_s) and waits < WAITS:
            time.sleep(WAIT_SECONDS)
            latency_s, waits = measure_latency(), waits + 1
        round_times, latency_before_s, latency_s = time_round(), latency_s, measure_latency()
        timed_rounds.append((max(latency_before_s, latency_s), round_times))
        near_rounds = [times for distance_s, times in timed_rounds if not is_far(distance_s)]
        if len(near_rounds) >= rounds:
            return near_rounds
    return [times for _, times in timed_rounds]


if __name__ == "__main__":
    main()
    gc.collect()  # what joins ranks goes before the threads that it is joined by
