"""What input costs a step: `make input`. A benchmark, not a test.

One process of each framework trains AlexNet with one batch that is loaded once, and with batches of
2,000 photographs, kept as pixels and as JPEG files, read by us and by the framework's own reader;
step by step in turn, in random order. A ratio is the median over rounds of what the same round's
step with one batch took to what this one did, with its 95 % interval: throughput of throughput.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy import stats
from tabulate import tabulate

from tests import photographs
from tests.measuring import inside
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.host import machine

PIXELS = {"caffe": "lmdb", "mxnet": "recordio", "tensorflow": "tfrecord", "torch": "lmdb"}
"""The format of each framework's own reader; RecordIO and TFRecord keep pixels as PNG."""


SETS = (
    ("raw", "raw", "pixels"),
    ("lmdb", "lmdb", "pixels"),
    *((f"jpeg-{form}", form, "jpeg:90") for form in ("lmdb", "recordio", "tfrecord")),
)


def main() -> None:
    """Measure, and print the ratios with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path, default=Path("benchmark-sets"), help="made once")
    parser.add_argument("--framework", default=",".join(PIXELS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--network", default="alexnet")
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()
    make_data_sets(arguments.sets)
    host = machine.describe_machine()
    print(f"{host.cores} cores {host.cpu_model}, {arguments.network}, batch {arguments.batch_size}")
    lines = []
    for framework in arguments.framework.split(","):
        times = measure(framework, arguments, host.cores)
        lines += [
            (framework, name, *format_times(times["one batch"], input_times))
            for name, input_times in times.items()
        ]
    headers = ["framework", "input", "seconds per step", "of one batch's throughput", "waiting"]
    print(tabulate(lines, headers, "github", disable_numparse=True))


def make_data_sets(folder: Path) -> None:
    """The photographs at 256×256 in every form that is needed, where they are not there yet."""
    folder.mkdir(exist_ok=True)
    source = sources.open_imagenet(photographs.make_image_set(folder))
    for name, form, encoding in SETS:
        preprocessing = Preprocessing(channels=3, size=(256, 256), encoding=encoding, shuffle=0)
        if not (folder / name).exists():
            writing.make_data_set(source, folder / name, form, preprocessing)


def format_times(baseline: dict, input_times: dict) -> tuple[str, str, str]:
    """Median seconds of a step, the ratio with its interval, the share that is waiting."""
    steps, waiting = np.asarray(input_times["step"]), np.asarray(input_times["waiting"])
    ratios = np.asarray(baseline["step"]) / steps
    ratio = "1"
    if input_times is not baseline:
        low, high = stats.bootstrap((ratios,), np.median, rng=0).confidence_interval
        ratio = f"{np.median(ratios):.1%} ({low:.1%} – {high:.1%})"
    return (
        f"{np.median(steps):.3f}",
        ratio,
        f"{np.median(waiting / steps):.2%}",
    )


def measure(framework: str, arguments: argparse.Namespace, threads: int) -> dict:
    """Seconds of each step and of its waiting, by kind of input."""
    native_format = PIXELS[framework]
    sets = [
        ("raw, ours", arguments.sets / "raw", "ours"),
        ("LMDB pixels, ours", arguments.sets / "lmdb", "ours"),
        ("JPEG files, ours", arguments.sets / f"jpeg-{native_format}", "ours"),
        (f"JPEG in {native_format}, its own", arguments.sets / f"jpeg-{native_format}", "native"),
    ]
    if native_format == "lmdb":
        sets.append(("LMDB pixels, its own", arguments.sets / "lmdb", "native"))
    sets_json = json.dumps(
        [(name, str(folder.absolute()), reading) for name, folder, reading in sets]
    )
    script_arguments = (
        arguments.network,
        arguments.rounds,
        arguments.batch_size,
        threads,
        sets_json,
    )
    return inside.run_script("input_steps.py", framework, threads, *script_arguments)


if __name__ == "__main__":
    main()
