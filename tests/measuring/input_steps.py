"""Steps of one trainer in a framework's interpreter, fed in turn from one batch and from data sets.

`python input_steps.py WORKER FRAMEWORK KERNEL NETWORK ROUNDS BATCH_SIZE THREADS SETS`, where
SETS is JSON: a list of [name, folder, "ours" or "native"]. Prints JSON: seconds of each step, and
of its waiting for input, by name; "one batch" is what is loaded once.
"""

import importlib
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path


def main() -> None:
    archive, framework, kernel, network, rounds, batch_size, threads, sets = sys.argv[1:]
    sys.path.insert(0, archive)
    from xfbench.worker import feed, prepared
    from xfbench.worker.input import open_data_set
    from xfbench.worker.protocol import Group, Options, TrainingFiles
    from xfbench.workloads import workloads
    from xfbench.workloads.initial import initial_parameters

    workload, size = workloads()[network], int(batch_size)
    options = Options(kernel, int(threads))
    train = importlib.import_module(f"xfbench.adapters.{framework}.train")
    # Weights that hardly move: what diverges may be slower, and end Caffe (docs/findings.md).
    solver = replace(workload.solver, base_lr=1e-9)
    trainer = train.build(workload.network, solver, options, Group())
    trainer.assign(initial_parameters(workload.network, 0))
    data = open_data_set("synthetic", workload, size, 0)
    feeds = {
        "one batch": feed.Feed(
            feed.batches_of_epoch_from_data_set(data, trainer, Group(), size, 0, 0)
        )
    }
    for name, folder, reading in json.loads(sets):
        data = open_data_set(name, workload, size, 0, folder)
        if reading == "ours":
            feeds[name] = feed.Feed(
                feed.batches_of_epoch_from_data_set(data, trainer, Group(), size, 0, 1)
            )
            continue
        form = prepared.read_manifest(Path(folder))["format"]
        files = TrainingFiles(Path(folder), form, len(data.train), workload, size, 1)
        reader = importlib.import_module(f"xfbench.adapters.{framework}.reader")
        feeds[name] = feed.Feed(
            feed.batches_of_epoch_from_reader(reader.open_reader(files, options), 0)
        )
    times: dict = {name: {"step": [], "waiting": []} for name in feeds}
    order = random.Random(0)
    for round_number in range(-3, int(rounds)):
        for name in order.sample(list(feeds), len(feeds)):
            start = time.perf_counter()
            batch = feeds[name].batch()
            waiting_s = time.perf_counter() - start
            trainer.step(batch)
            trainer.wait_for_loss()
            if round_number >= 0:
                times[name]["step"].append(time.perf_counter() - start)
                times[name]["waiting"].append(waiting_s)
    for feed_of_input in feeds.values():
        feed_of_input.close_current_epoch()
    print(json.dumps(times))


if __name__ == "__main__":
    main()
