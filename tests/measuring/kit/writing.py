"""Write a kit: a bundle, plain loops and measurements, and a program that runs them in time."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.measuring.kit.cells import EXTRA_MODE, PLAIN_MODES, Group, Size, list_groups
from xfbench import bundle
from xfbench.base import digests
from xfbench.environments import worker_archive
from xfbench.execution import job
from xfbench.model import capabilities, training
from xfbench.model.plan import Plan
from xfbench.model.request import Cell, Protocol, Request

FRAMEWORKS = ("torch", "jax")
_THERE = Path(__file__).parent / "there"
_OWN_LOOPS = ("own_torch.py", "own_jax.py")
_TIME_LIMIT = 600.0
# Seconds that cases and launches of a network take on a GPU: estimates from a first run on an H100.
_SECONDS = {
    **{"lenet": 15, "convnet": 15, "convnet-quick": 15, "alexnet": 20, "caffenet": 20},
    **{"googlenet": 40, "resnet50": 50, "resnet101": 90},
}
_FACTORS = {"xla": 4.0, "inductor": 3.0}
_LIMIT_FACTOR = 4.0  # of the time limit over the estimate

# Lines that are added to an adapter's train.py, so that it does something else than it was asked
# to. `trainer` is the trainer that the adapter has built.
_SWITCHES = {
    ("torch", "cuda", "cudnn", "tf32 on"): """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True""",
    ("jax", "cuda", "xla", "tf32 on"): """
    trainer.products = device.PRODUCTS["tf32"]""",
    ("torch", "cuda", "channels_last", "not channels last"): """
    trainer.form = torch.contiguous_format
    trainer.graph.to(memory_format=torch.contiguous_format)""",
    ("torch", "cuda", "cudnn", "cudnn off"): """
    torch.backends.cudnn.enabled = False""",
    ("torch", "cpu", "channels_last", "not channels last"): """
    trainer.form = torch.contiguous_format
    trainer.graph.to(memory_format=torch.contiguous_format)""",
    ("torch", "cpu", "onednn", "onednn off"): """
    torch.backends.mkldnn.enabled = False""",
}
_PLANT = """

_build_as_requested = build


def build(*arguments):
    trainer = _build_as_requested(*arguments){lines}
    return trainer
"""
_RUN_CASES = 'sh start.sh; "$PYTHON" "$KIT/scripts/fold.py"'
# A process in the launch's folder would count as the launch's own.
_SECOND_PROCESS = '(cd / && exec "$PYTHON" "$KIT/scripts/busy.py") & sleep 8; sh start.sh'


@dataclass(frozen=True)
class _Item:
    """An item of the kit; see `there/run.py`.

    - `name`: its folder, in the kit and in the archive
    - `command`: a line for the shell, run in that folder
    - `worker`: the file in workers/ that the folder gets as worker.pyz; None: none
    - `inputs`: the file in inputs/ that the folder gets as inputs.npz; None: none
    - `variables`: environment variables for the command
    - `is_alone`: whether nothing else may run meanwhile
    - `is_repeated`: whether it is run again on each machine
    - `seconds`: estimated time
    """

    name: str
    title: str
    stage: str
    framework: str | None
    command: str
    seconds: float
    worker: str | None = None
    inputs: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    is_alone: bool = True
    is_repeated: bool = False
    batch_size: int | None = None

    def document(self, size: Size) -> dict[str, Any]:
        """Return the item in kit.json."""
        seconds = self.seconds * size.limit_factor
        return {
            "name": self.name,
            "title": self.title,
            "stage": self.stage,
            "framework": self.framework,
            "command": self.command,
            "variables": dict(self.variables),
            "worker": self.worker,
            "inputs": self.inputs,
            "alone": self.is_alone,
            "always": self.is_repeated,
            "batch_size": self.batch_size,
            "seconds": round(seconds, 1),
            "limit": round(max(size.min_limit_s, seconds * _LIMIT_FACTOR)),
        }


def write_kit(folder: Path, size: Size, say: Callable[[str], None]) -> None:
    """Write the kit to `folder`, a new or empty folder. `say` gets the progress messages."""
    groups = list_groups(size)
    plan = _build_plan(groups, size)
    bundle.write_carried_run(plan, folder, say)
    plan = Plan.read(folder / "plan.json")
    workers, scripts = folder / "workers", folder / "scripts"
    workers.mkdir()
    for framework in FRAMEWORKS:
        shutil.copyfile(
            worker_archive.ensure_worker_archive(framework), workers / f"{framework}.pyz"
        )
    switches = list(_write_switches(folder, size, plan))
    scripts.mkdir()
    for script in _THERE.glob("[a-z]*.py"):
        shutil.copyfile(script, (folder if script.name == "run.py" else scripts) / script.name)
    for name in _OWN_LOOPS:
        shutil.copyfile(Path(__file__).parent.parent / name, scripts / name)
    shutil.copyfile(_THERE / "run.sh", folder / "run.sh")
    items = [
        *_list_facts(size),
        *_list_checks(folder, groups, size, "verification"),
        *_list_event_items(folder, size, plan),
        *switches,
        *_list_throughput(groups, size, plan),
        *_list_checks(folder, groups, size, "rest"),
        *_list_rest(groups, size, plan),
    ]
    document = {"frameworks": FRAMEWORKS, "items": [item.document(size) for item in items]}
    (folder / "kit.json").write_text(json.dumps(document, indent=1))
    _pack_inputs(folder)


def _pack_inputs(folder: Path) -> None:
    """Keep shared files once, and compress the jobs. `there/run.py` makes the folders complete."""
    for worker in folder.glob("*/*/worker.pyz"):
        worker.unlink()
    for request_file in folder.glob("*/*/request.json"):
        (request_file.parent / "request.json.gz").write_bytes(
            gzip.compress(request_file.read_bytes(), mtime=0)
        )
        request_file.unlink()
    (folder / "inputs").mkdir()
    for inputs in folder.glob("checks/*/inputs.npz"):
        inputs.replace(folder / "inputs" / _inputs_name(inputs))


def _inputs_name(inputs: Path) -> str:
    return f"{digests.of_bytes(inputs.read_bytes())[7:19]}.npz"


def _build_plan(groups: list[Group], size: Size) -> Plan:
    protocols: dict[Cell, Protocol] = {}
    for group in groups:
        for cell, protocol in group.cells(size):
            earlier = protocols.get(cell)
            if earlier is None or earlier.least < protocol.least:
                protocols[cell] = protocol
    return Plan(
        requests=tuple(
            cell.request(launch)
            for cell, protocol in protocols.items()
            for launch in range(1, protocol.least + 1)
        ),
        protocols=tuple(protocols.items()),
        pythons={},
        verify=True,
        strict=False,
        time_limit=_TIME_LIMIT,
    )


def _list_facts(size: Size) -> Iterator[_Item]:
    for framework in FRAMEWORKS:
        yield _Item(
            name=f"inspect/{framework}",
            title=f"inspect {framework}",
            stage="facts",
            framework=framework,
            command="sh start.sh",
            seconds=20,
            worker=f"{framework}.pyz",
            is_alone=False,
            is_repeated=True,
        )
    yield _Item(
        name="facts/machine",
        title="facts of the machine",
        stage="facts",
        framework=None,
        command='"$PYTHON" "$KIT/scripts/facts.py"',
        seconds=10,
        is_alone=False,
        is_repeated=True,
    )
    side = 8192 if size.device == "cuda" else 512
    for framework in FRAMEWORKS:
        yield _Item(
            name=f"facts/peaks-{framework}",
            title=f"peaks in {framework}",
            stage="facts",
            framework=framework,
            command=f'"$PYTHON" "$KIT/scripts/peaks.py" {framework} {size.device} {side}',
            seconds=20,
            is_repeated=True,
        )


def _list_checks(folder: Path, groups: list[Group], size: Size, stage: str) -> Iterator[_Item]:
    """Yield the bundle's cases of a stage: those of a cell, then those of its timed batches."""
    places: dict[tuple[Any, ...], int] = {}
    stages = {}
    for group in groups:
        for cell, _ in group.cells(size):
            key = (cell.framework, *_kind(cell))
            places.setdefault(key, len(places))
            stages.setdefault(key, group.stage if group.stage == "rest" else "verification")
    items = []
    for case_folder in (folder / "checks").iterdir():
        document = json.loads((case_folder / "request.json").read_text())
        request = Request.model_validate(document["request"])
        is_batch = any("copies" in case for case in document["cases"])
        key = (request.framework, *_kind(request))
        if stages[key] != stage:
            continue
        batch_size = request.global_batch_size if is_batch else 0
        title = f"verify {_label(request)}" + f" · batch {batch_size}" * is_batch
        seconds = _SECONDS[request.workload] * _FACTORS.get(request.kernel, 1.0)
        inputs = case_folder / "inputs.npz"
        item = _Item(
            name=f"checks/{case_folder.name}",
            title=title,
            stage=stage,
            framework=request.framework,
            command=_RUN_CASES,
            seconds=seconds,
            worker=f"{request.framework}.pyz",
            inputs=_inputs_name(inputs) if inputs.exists() else None,
            is_alone=False,
        )
        items.append((places[key], batch_size, title, item))
    for *_, item in sorted(items, key=lambda each: each[:3]):
        yield item


def _kind(cell: Cell | Request) -> tuple[Any, ...]:
    return (cell.kernel, cell.precision, cell.workload, cell.device, cell.ranks)


def _label(request: Cell | Request) -> str:
    parts = [request.workload, request.framework, request.kernel, request.precision]
    return " · ".join(parts + [f"{request.ranks} ranks"] * (request.ranks > 1))


def _list_event_items(folder: Path, size: Size, plan: Plan) -> Iterator[_Item]:
    """Yield the launches whose windows are timed by CUDA events too."""
    network = "resnet50" if size.device == "cuda" else "lenet"
    for precision, kernel in (("float32", size.eager), ("bfloat16", "channels_last")):
        request = next(
            (
                request
                for request in plan.requests
                if (request.framework, request.workload) == ("torch", network)
                and (request.kernel, request.precision) == (kernel, precision)
            ),
            None,
        )
        if request is None:
            continue
        request = request.model_copy(update={"device": "cuda", "window": 10, "steps": 50})
        name = f"events/{network}-{precision}"
        target = folder / name
        target.mkdir(parents=True)
        workload = training.workload_with_solver_of_cell(request)
        job.write_job_files(job.build_job_document("train", request, workload), target)
        yield _Item(
            name=name,
            title=f"CUDA events, {_label(request)}",
            stage="timing",
            framework="torch",
            command='"$PYTHON" "$KIT/scripts/events.py"',
            seconds=60,
            worker="torch.pyz",
        )


def _write_switches(folder: Path, size: Size, plan: Plan) -> Iterator[_Item]:
    """Write launches that do something else than they were asked to, and yield their items."""
    numbers = {
        (request.framework, request.kernel): number
        for number, request in reversed(list(enumerate(plan.requests, 1)))
        if (request.workload, request.precision) == ("lenet", "float32") and request.ranks == 1
    }
    for (framework, device, kernel, words), lines in _SWITCHES.items():
        if device == size.device or words == "tf32 on":
            name = f"{framework}-{words.replace(' ', '-')}"
            worker = f"switch-{name}.pyz"
            _write_planted_worker(folder / "workers", framework, lines, worker)
            source = folder / "launches" / f"{numbers[framework, kernel]:05d}"
            yield _copy_as_switch(folder, source, name, f"{framework}, {words}", worker, device)
    source = folder / "launches" / f"{numbers['torch', 'cudnn']:05d}"
    item = _copy_as_switch(
        folder, source, "second-process", "a second process", "torch.pyz", "cuda"
    )
    yield replace(item, command=_SECOND_PROCESS)


def _write_planted_worker(workers: Path, framework: str, lines: str, name: str) -> None:
    source = workers / f"{framework}.pyz"
    member = f"xfbench/adapters/{framework}/train.py"
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(workers / name, "w") as planted:
        for each in archive.infolist():
            content = archive.read(each)
            if each.filename == member:
                content += _PLANT.format(lines=lines).encode()
            planted.writestr(each, content, zipfile.ZIP_DEFLATED)


def _copy_as_switch(
    folder: Path, source: Path, name: str, words: str, worker: str, device: str
) -> _Item:
    target = folder / "switches" / name
    shutil.copytree(source, target)
    document = json.loads((source / "request.json").read_text())
    request = document["request"]
    request["device"] = device
    (target / "request.json").write_text(json.dumps(document, indent=1))
    return _Item(
        name=f"switches/{name}",
        title=f"switch: {words}",
        stage="switches",
        framework=request["framework"],
        command="sh start.sh",
        seconds=40,
        worker=worker,
        batch_size=request["global_batch_size"],
    )


def _list_throughput(groups: list[Group], size: Size, plan: Plan) -> Iterator[_Item]:
    """Yield launches of each group in rounds, each beside a plain loop."""
    numbers = {request: number for number, request in enumerate(plan.requests, 1)}
    for group in groups:
        if group.stage != "throughput":
            continue
        cells = [
            cell
            for cell, _ in group.cells(size)
            if capabilities.refusal_reason(cell.request(1)) is None
        ]
        for launch in range(1, group.launches + 1):
            for cell in cells:
                yield _build_plain_item(cell, PLAIN_MODES[cell.kernel], launch, size)
                request = cell.request(launch)
                yield _build_launch_item(request, numbers[request], "throughput")
            has_graphs = any(PLAIN_MODES[cell.kernel] == EXTRA_MODE for cell in cells)
            if group.launches == size.launches[0] and cells and not has_graphs:
                yield _build_plain_item(cells[0], EXTRA_MODE, launch, size)


def _build_launch_item(request: Request, number: int, stage: str) -> _Item:
    factor = _FACTORS.get(request.kernel, 1.0)
    extras = " · checkpoints" * bool(request.checkpoints) + " · profile" * request.profile
    return _Item(
        name=f"launches/{number:05d}",
        title=f"train {_label(request)} · batch {request.global_batch_size}{extras}",
        stage=stage,
        framework=request.framework,
        command="sh start.sh",
        seconds=10 + _SECONDS[request.workload] * factor / 2,
        worker=f"{request.framework}.pyz",
        batch_size=request.global_batch_size,
    )


def _build_plain_item(cell: Cell, mode: str, launch: int, size: Size) -> _Item:
    batch_size, steps = cell.global_batch_size, size.lengths["steps"]
    words = [cell.framework, cell.workload, batch_size, cell.precision, mode, cell.device, steps]
    factor = 3.0 if mode in ("compile", "graphs") else 1.0
    return _Item(
        name=f"plain/{'-'.join(map(str, words[:5]))}-{launch}",
        title=f"plain {cell.workload} · {cell.framework} {mode} · {cell.precision} · "
        f"batch {batch_size}",
        stage="throughput",
        framework=cell.framework,
        command=" ".join(['"$PYTHON" "$KIT/scripts/plain.py"', *map(str, words)]),
        variables={name: str(size.threads) for name in ("OMP_NUM_THREADS", "NPROC")},
        seconds=10 + _SECONDS[cell.workload] * factor / 2,
    )


def _list_rest(groups: list[Group], size: Size, plan: Plan) -> Iterator[_Item]:
    """Yield what is done last; at the end, launches of the cells that were only verified."""
    yield _Item(
        name="rest/nccl",
        title="NCCL with one rank",
        stage="rest",
        framework="torch",
        command='"$PYTHON" "$KIT/scripts/nccl.py"',
        seconds=20,
    )
    for precision in (each for each in ("float32", "bfloat16") if each in size.precisions):
        words = f"resnet50 channels_last {precision}"
        yield _Item(
            name=f"rest/memory-{precision}",
            title=f"largest batch, {words}",
            stage="rest",
            framework="torch",
            command=f'"$PYTHON" "$KIT/scripts/memory.py" {words}',
            seconds=60,
        )
    timed = {
        cell for group in groups if group.stage == "throughput" for cell, _ in group.cells(size)
    }
    rest = {cell for group in groups if group.stage == "rest" for cell, _ in group.cells(size)}
    numbered = [(n, r) for n, r in enumerate(plan.requests, 1) if r.cell() not in timed]
    for is_rest, (number, request) in itertools.product((True, False), numbered):
        if (request.cell() in rest) == is_rest:
            yield _build_launch_item(request, number, "rest" if is_rest else "launches")
