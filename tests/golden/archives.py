"""Golden values of the archives in docs/: what the commands and today's digests make of them."""

import atexit
import contextlib
import functools
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from tests.golden import form
from xfbench import cli
from xfbench.execution import record_builder
from xfbench.model import training
from xfbench.model.certificate import Certificate, Subject
from xfbench.model.facts import workload_facts
from xfbench.model.record import Record, WorkloadFacts
from xfbench.model.request import Request

DOCS = Path(__file__).parents[2] / "docs"
COLUMNS = "columns"
DAMAGED = "damaged"  # results of which each has another defect
_ANY_ADAPTER = "torch"  # for the record's software, which the cell does not contain

# Two sides, or --self and one. Each pair of the first archive covers other frameworks; the others
# vary what the archive varies.
COMPARISONS = {
    "columns": (
        "framework=torch framework=mxnet",
        "framework=tensorflow framework=caffe",
        "framework=ipex framework=jax",
        "framework=torch,workload=lenet framework=reference",
        "--self framework=torch",
    ),
    "example-profiles": ("framework=torch framework=mxnet", "framework=tensorflow framework=caffe"),
    "example-records": (
        "threads=2 threads=1",
        "page_cache=cold page_cache=warm",
        "kernel=native kernel=onednn",
        "--self framework=torch",
    ),
    "gpu-2026-11-27-records": ("framework=torch framework=jax",),
    "laptop-batch-size": (
        "framework=torch framework=mxnet",
        "framework=torch,global_batch_size=512 global_batch_size=256",
    ),
    "laptop-checkpoint": ("framework=torch framework=mxnet", "--self framework=tensorflow"),
    "laptop-data-format": ("framework=torch framework=mxnet", "--self framework=torch"),
    "laptop-kernels": (
        "kernel=onednn kernel=native",
        "framework=tensorflow,kernel=xla framework=tensorflow,kernel=onednn",
    ),
    "laptop-learning-speedup": ("framework=torch framework=mxnet",),
    "laptop-framework-slowdown": ("framework=torch framework=tensorflow", "--self framework=mxnet"),
    "leaderboard": ("framework=tensorflow framework=ipex", "--self framework=torch"),
    "laptop-strong-scaling": ("ranks=2 ranks=1", "framework=caffe framework=tensorflow"),
    "laptop-thread-sweep": ("threads=2 threads=1", "kernel=mkl kernel=openblas"),
    "laptop-variability": ("framework=torch framework=mxnet", "--self framework=caffe"),
}
# Other forms of the leaderboard than the plain one, where the archive has something for them.
LEADERBOARDS = {
    "columns": ("--by framework",),
    "example-profiles": ("--view layers",),
    "laptop-kernels": ("--by kernel",),
    "laptop-learning-speedup": ("--accuracy 90%",),
    "laptop-framework-slowdown": ("--view slowdown",),
    "laptop-variability": ("--published",),
}


def sources() -> dict[str, Path]:
    """Return every archive of records in docs/ by its name."""
    return {
        "-".join(path.relative_to(DOCS).parts).removesuffix(".tar.gz"): path
        for path in sorted(DOCS.rglob("*.tar.gz"))
    }


def names() -> list[str]:
    """Return the names of the archives."""
    return list(sources())


def leaderboard(name: str) -> dict[str, Any]:
    """Return what `leaderboard --json` prints of the archive, plain and in other forms."""
    forms = ("", *LEADERBOARDS.get(name, ()))
    return {
        f"leaderboard {options}".rstrip(): _comparable_output(name, "leaderboard", options)
        for options in forms
    }


def compare(name: str) -> dict[str, Any]:
    """Return what `compare --json` prints of some sides of the archive."""
    return {
        f"compare {sides}": _comparable_output(name, "compare", sides)
        for sides in COMPARISONS[name]
    }


def results_list(name: str) -> dict[str, Any]:
    """Return what `results list --json` prints: the ids in order, and a digest for each field.

    The digest of a field is that of its values in all records, in order.
    """
    records = _output(name, "results list", "--limit 0")["records"]
    fields: dict[str, list[Any]] = {}
    for record in records:
        for path, value in form.leaves(record):
            if not form.SENTENCES.intersection(path.replace("[]", "").split(".")):
                fields.setdefault(path, []).append(value)
    return {
        "fields": {
            path: f"{len(values)} {_short_digest(values)}" for path, values in fields.items()
        },
        "records": [record["id"][7:19] for record in records],
    }


def results_validate(name: str) -> dict[str, Any]:
    """Return what `results validate --json` says of the archive, and of its records in a folder."""
    if name == DAMAGED:
        return {"folder": _run_validate(damaged_results())}
    return {"archive": _run_validate(sources()[name]), "folder": _run_validate(results(name))}


@functools.cache
def keys(name: str) -> dict[str, Any]:
    """Return the digests by which the archive's records and certificates are found, recomputed.

    Of a record: its cell, then the key of the certificate that covers it.
    """
    records, certificates = _documents(name)
    return {
        "certificates": {document.id[7:]: document.subject.key for document in certificates},
        "records": {
            document.id[7:]: f"{_cell(document)} {_certificate_key(document)}"
            for document in records
        },
    }


def stored_cells(name: str) -> dict[str, str | None]:
    """Return the cell that each record of the archive names."""
    return {record.id[7:]: record.cell for record in _documents(name)[0]}


@functools.cache
def results(name: str) -> Path:
    """Import the archive into a results folder, as its readers do; once."""
    folder = _scratch() / name / "results"
    status, _ = _run("results", "import", str(sources()[name]), "--results", str(folder))
    assert status == 0
    return folder


@functools.cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="xfbench-golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def damaged_results() -> Path:
    """Return a copy of some results in which six files are damaged, each in another way."""
    folder = _scratch() / DAMAGED / "results"
    if folder.exists():
        return folder
    shutil.copytree(results(COLUMNS), folder)
    edited, garbage, misnamed, duplicated, *_ = sorted((folder / "records").rglob("*.json"))
    edited.write_text(edited.read_text().replace('"threads": 2', '"threads": 3'))
    garbage.write_text("{}\n")
    misnamed.rename(misnamed.with_name(f"{misnamed.stem[::-1]}.json"))
    shutil.copy(duplicated, folder / "records" / "copy.json")
    missing, changed, *_ = sorted((folder / "certificates").glob("*.json"))
    missing.unlink()
    changed.write_text(changed.read_text().replace('"equal"', '"different"'))
    (folder / "packs").mkdir()
    (folder / "packs" / "0.ndjson").write_text("no pack\n")
    return folder


def _run_validate(path: Path) -> Any:
    status, output = _run("results", "validate", str(path), "--json")
    document = json.loads(output)
    for defect in document["defects"]:
        defect["file"] = defect["file"].removeprefix(str(path)).lstrip(":/")
    return {"exit status": status, **form.comparable(document)}


def _comparable_output(name: str, command: str, options: str) -> Any:
    return form.comparable(_output(name, command, options))


def _output(name: str, command: str, options: str) -> Any:
    line = [*command.split(), *options.split(), "--json", "--results", str(results(name))]
    status, output = _run(*line)
    assert status == 0, (line, status)
    return json.loads(output)


@functools.cache
def _command() -> Any:
    return typer.main.get_command(cli.app)


def _run(*line: str) -> tuple[int, str]:
    """Run a command in this process: its exit status and standard output."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = _command().main(line, prog_name="xfbench", standalone_mode=False)
    return status or 0, output.getvalue()


def _short_digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@functools.cache
def _documents(name: str) -> tuple[list[Record], list[Certificate]]:
    """Read the archive's records and certificates, in the order of their ids."""
    contents = {}
    with tarfile.open(sources()[name]) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            contents[member.name] = file.read()
    documents = {
        kind: [
            model.read(contents[file]) for file in sorted(contents) if file.startswith(f"{kind}/")
        ]
        for kind, model in (("records", Record), ("certificates", Certificate))
    }
    return documents["records"], documents["certificates"]


def _cell(record: Record) -> str | None:
    if record.software is None or record.request is None or record.cell is None:
        return None
    return _cell_of(
        record.request.model_copy(update={"launch": 1}),
        record.software.adapter_digest,
        record.software.environment_digest,
    )


@functools.cache
def _cell_of(request: Request, adapter_digest: str, environment_digest: str) -> str | None:
    """Recompute the cell as a launch does that has failed: nothing else is needed for it."""
    answer = {"status": "failed", "reason": "not launched"}
    adapter = SimpleNamespace(name=_ANY_ADAPTER, digest=adapter_digest, revision=None)
    environment = SimpleNamespace(digest=environment_digest, packages={})
    fields = {"workload": _workload_facts(request)}
    return record_builder.build_record(request, answer, adapter, environment, fields).cell


@functools.cache
def _workload_facts(request: Request) -> WorkloadFacts:
    return workload_facts(training.workload_with_solver_of_cell(request))


def _certificate_key(record: Record) -> str | None:
    if record.software is None or record.request is None or record.machine is None:
        return None
    return Subject.from_request(
        record.request,
        _workload_facts(record.request.model_copy(update={"launch": 1})).digest,
        record.software.adapter_digest,
        record.software.worker_digest,
        record.software.environment_digest,
        record.machine,
    ).key
