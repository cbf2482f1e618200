"""Tests that each study at size paper has the cells of its source, and that they are possible.

The lists were written from the sources. Where the data sets of a source exist, tiny ones here, they
are trained on too.
"""

import itertools
import math

import pytest

from xfbench.model import capabilities
from xfbench.planning import experiment
from xfbench.studies import running

H19 = ("lenet", "alexnet", "resnet50", "resnet101")
DISTRIBUTED = ("lenet", "resnet50", "resnet101")  # of H19: AlexNet diverged
Z17 = ("convnet", "caffenet", "alexnet", "googlenet")
IMAGENET = dict.fromkeys((*Z17, *H19), ("synthetic", "imagenet"))
IMAGENET |= {"lenet": ("synthetic",), "convnet": ("synthetic", "cifar10")}
IMAGENET_100 = {"convnet": ("synthetic", "cifar10"), "caffenet": ("synthetic", "imagenet")}
NODES = (1, 2, 4, 8, 16, 32)
BATCHES = (128, 256, 512, 1024, 2048, 4096, 8192)
GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12000, 15000)
IMAGES = {"digits": 1437, "mnist": 60_000, "cifar10": 50_000, "imagenet": 1_281_167}
FIELDS = ("workload", "data", "framework", "device", "ranks", "nodes", "batch_size", "detail")


def cells(workloads, data, framework, device, layouts, batches, details=("",)):
    """Return the tuples of `FIELDS`. `layouts` are pairs of (ranks, nodes); None: any batch."""
    return {
        (name, data_set, framework, device, *layout, batch, detail)
        for name, layout, batch, detail in itertools.product(workloads, layouts, batches, details)
        for data_set in data[name]
    }


def on_summitdev(workloads, data=IMAGENET, nodes=(1,), batches=(128,), details=("",)):
    """Return the cells of TensorFlow on nodes of four GPUs that share a batch."""
    layouts = [(4 * count, count) for count in nodes]
    return cells(workloads, data, "tensorflow", "cuda", layouts, batches, details)


ON_FILES = dict.fromkeys(H19, ("photographs",)) | {"lenet": ("digits",)}
SERVERS = [f"servers {count}" for count in (1, 2, 4, 8, 16)]
LEARNED = dict.fromkeys(H19, ("imagenet",)) | {"lenet": ("mnist",)}
ALONE_OR_FOUR = [(count, 1) for count in (1, 2, 4)]
ONE_RANK_PER_NODE = {
    "strong": [(count, count) for count in (1, 2, 4, 8)],
    "weak": [(count, count) for count in (1, 128, 256, 512, 1024)],
}


def describe_files(cell):
    """Return the format, but not that of ImageNet, which is used as it is, and the page cache."""
    form = "" if cell.data == "imagenet" else cell.data_set.format
    return f"{form} {cell.page_cache}"


# What is compared of the cells' other settings.
DETAILS = {
    "thread-sweep": lambda cell: f"{cell.kernel} {cell.threads}",
    "kernels": lambda cell: f"{cell.kernel} {cell.threads}",
    "strong-scaling": lambda cell: cell.kernel,
    "weak-scaling": lambda cell: cell.kernel,
    "storage": describe_files,
    "variability": describe_files,
    "data-format": lambda cell: cell.data_set.format,
    "checkpoint": lambda cell: cell.checkpoints,
    "learning-speedup": lambda cell: f"{cell.epochs} epochs" if cell.epochs else "5 launches",
    "parameter-servers": lambda cell: f"servers {dict(cell.strategy_options).get('servers', 1)}",
}
THREADS = [f"{kernel} {threads}" for kernel in ("mkl", "openblas") for threads in (32, 64, 128)]
EXPECTED = {
    "overall": on_summitdev(H19),
    "scale-up": cells(H19, IMAGENET, "tensorflow", "cuda", ALONE_OR_FOUR, [128]),
    "scale-out": on_summitdev(DISTRIBUTED, nodes=NODES),
    "parameter-servers": on_summitdev(DISTRIBUTED, nodes=[16], details=SERVERS)
    | on_summitdev(DISTRIBUTED, nodes=[16], batches=BATCHES, details=SERVERS[:1])
    | on_summitdev(DISTRIBUTED, LEARNED, nodes=[16], details=SERVERS),
    "storage": on_summitdev(H19, ON_FILES, details=["tfrecord cold", "tfrecord warm"])
    | on_summitdev(H19[1:], LEARNED, details=[" cold", " warm"]),
    "variability": on_summitdev(H19, ON_FILES, details=["tfrecord cold"])
    | on_summitdev(H19[1:], LEARNED, details=[" cold"]),
    "data-format": on_summitdev(H19, ON_FILES, details=["folder", "lmdb", "tfrecord"])
    | on_summitdev(H19[1:], LEARNED, details=["folder", "lmdb", "tfrecord"]),
    "checkpoint": on_summitdev(
        H19, dict.fromkeys(H19, ("synthetic",)), nodes=[1, 8, 32], details=[4]
    ),
    "thread-sweep": cells(
        IMAGENET_100, IMAGENET_100, "caffe", "cpu", [(1, 1)], [None], THREADS
    ),
    "kernels": cells(IMAGENET_100, IMAGENET_100, "caffe", "cpu", [(1, 1)], [None], THREADS),
    "strong-scaling": cells(
        Z17, IMAGENET, "caffe", "cpu", ONE_RANK_PER_NODE["strong"], [None], ["mkl"]
    ),
    "weak-scaling": cells(
        Z17, IMAGENET, "caffe", "cpu", ONE_RANK_PER_NODE["weak"], [None], ["mkl"]
    ),
    "architectures": {
        cell for framework in ("caffe", "mxnet", "tensorflow", "torch")
        for device in ("cpu", "cuda")
        for cell in cells(Z17, IMAGENET, framework, device, [(1, 1)], [None])
    }
    | {
        cell for framework in ("caffe", "torch")
        for cell in cells(
            Z17, dict.fromkeys(Z17, ("synthetic",)), framework, "cpu", [(2, 2)], [None]
        )
    },
    "learning-speedup": cells(
        ["resnet50"], {"resnet50": ("synthetic", "imagenet")}, "torch", "cuda",
        [(count, count) for count in GPUS], [None], ["5 launches"],
    )
    | cells(
        ["convnet", "resnet50"], {"convnet": ("cifar10",), "resnet50": ("imagenet",)},
        "torch", "cuda", [(count, count) for count in GPUS[:9]], [None], ["30 epochs"],
    ),
}  # fmt: skip
# Networks, machines or frameworks that stand in the place of what cannot be had.
ALSO = {
    "learning-speedup": lambda cell: cell.workload == "lenet",
    "kernels": lambda cell: cell.framework != "caffe",
    "communication": lambda cell: cell.device == "cpu" or cell.framework == "torch",
    "batch-size": lambda cell: cell.framework == "torch",
}
EXPECTED["communication"] = on_summitdev(("lenet", "alexnet", "resnet50"))
EXPECTED["accuracy"] = (
    on_summitdev(["lenet"], LEARNED, nodes=NODES)
    | on_summitdev(DISTRIBUTED[1:], LEARNED, nodes=NODES)
    | on_summitdev(["alexnet"], IMAGENET, nodes=NODES[1:])
    | on_summitdev(["lenet"], LEARNED, nodes=[16], batches=BATCHES[:5])
    | on_summitdev(DISTRIBUTED[1:], LEARNED, nodes=[16], batches=BATCHES)
)
EXPECTED["batch-size"] = on_summitdev(H19)  # the first batch of each search


@pytest.mark.parametrize("name", [name for name in experiment.list_names() if name != "quick"])
def test_paper_size_has_the_cells_of_the_source_and_none_is_refused(
    name, data_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("XFBENCH_DATA", str(data_folder))
    study = experiment.load(name)
    plan = running.plan_study_and_write_data(study, "paper", running.Choices())
    assert not plan.missing_data
    found = {cell for cell, _ in plan.plan.protocols} | {each.cell for each in plan.searches}
    found |= {cell for cell, _ in plan.skipped_cells}  # this machine has too few cores
    detail, also = DETAILS.get(name, lambda _: ""), ALSO.get(name, lambda _: False)
    for cell in found:
        reason = capabilities.refusal_reason(cell.request(1))
        assert reason is None or (cell.framework == "caffe" and "cuda" in reason), cell.label()
        # A batch of more images than the data set has is refused when the launch starts.
        assert cell.global_batch_size <= IMAGES.get(cell.data, math.inf), cell.label()
    if name in EXPECTED:
        keys = {
            (cell.workload, cell.data, cell.framework, cell.device, cell.ranks, cell.nodes,
             cell.fixed_batch_size, detail(cell))
            for cell in found if not also(cell)
        }  # fmt: skip
        free_batch = {(*key[:6], None, key[7]) for key in keys}
        assert (free_batch if None in {key[6] for key in EXPECTED[name]} else keys) == EXPECTED[
            name
        ]
