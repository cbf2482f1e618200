"""Documents of records that differ in everything that a table shows, also in strange ways."""

import hashlib
import json
import random

from tests import sample_records
from xfbench.base import digests
from xfbench.model.certificate import Subject
from xfbench.model.facts import workload_facts
from xfbench.model.record import Machine, Software
from xfbench.model.request import Cell
from xfbench.workloads import workloads

DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")
SESSIONS = (None, None, "one", "two", "three", "four")
CELLS = (
    {},
    {"threads": 2},
    {"scaling": "weak"},
    {"framework": "mxnet", "kernel": "onednn"},
    {"workload": "convnet", "learning_rate": 0.01},
    {"steps": None, "epochs": 3, "data": "mnist", "checkpoints": 2},
    {"ranks": 2, "strategy": "ddp", "scaling": "weak", "global_batch_size": 8},
    {
        **{"ranks": 2, "strategy": "ps", "scaling": "weak", "global_batch_size": 8},
        **{"strategy_options": {"servers": 2}, "nodes": 2, "launcher": "slurm"},
    },
    {"profile": True, "memory_limit": 2**62 + 1},
    {"memory_limit": 2**64},  # too large for the index
    {"probe": "process"},
    {
        **{"data": "set", "steps": None, "epochs": 2, "input": "native", "input_threads": 2},
        "data_set": {
            **{"digest": "sha256:" + "5" * 64, "format": "lmdb", "channels": 1, "classes": 10},
            **{"shape": None, "train_images": 1000, "medium": "ext4 on nvme"},
        },
    },
)
CODE = {"xfbench_version": "0", "git_commit": None, "git_dirty": None, "worker_digest": "sha256:1"}
SOFTWARE = [
    Software(
        **CODE, adapter_digest=f"sha256:{n}", environment_digest="sha256:3", packages={"numpy": "2"}
    )
    for n in (1, 2)
]
MACHINES = [
    Machine(
        **{"hostname_hash": name, "cpu_model": f"Processor {model}", "microarchitecture": "zen2"},
        **{"cores": 2, "logical_cpus": 4, "memory_bytes": 2**34, "accelerators": ()},
        **{"kernel_release": "6.1", "governor": None, "cgroup_cpus": None},
        cgroup_memory_bytes=None,
    )
    for name, model in (("a", 1), ("b", 1), ("c", "é"))
]
IMPOSSIBLE = (
    ("measurement", "wall_seconds", -1.0),
    ("measurement", "peak_rss_bytes", 10**22),
    ("measurement", "step_seconds", [0.1, -0.1]),
    ("observed", "cpus", -2.0),
    ("observed", "handover_seconds", [-1.0]),
    ("limit", "matrix_product", 0.0),
    ("machine", "cores", 0),
    ("checkpoints", "wall_seconds", 1e9),
    ("checkpoints", "save_seconds", []),
)


def build_certificates():
    """Return a certificate of each cell by id, and also a "different" and a damaged one."""
    subjects = [
        Subject.from_request(
            Cell(**_cell_fields(cell)).request(1),
            workload_facts(workloads()[cell.get("workload", "lenet")]).digest,
            SOFTWARE[0].adapter_digest,
            SOFTWARE[0].worker_digest,
            SOFTWARE[0].environment_digest,
            MACHINES[0],
        )
        for cell in CELLS
    ]
    proofs = {subject: _build_certificate(subject) for subject in subjects}
    different = proofs[subjects[0]].model_copy(update={"verdict": "different"})
    return {
        **{proof.id: proof for proof in proofs.values()},
        **{"different": different, "damaged": "the certificate was edited"},
    }


def _build_certificate(subject):
    draft = sample_records.build_certificate(subject).model_copy(
        update={"created": f"{DAYS[0]}T00:00:00.000Z"}
    )
    return draft.model_copy(update={"id": draft.computed_id()})


def generate_documents(count, certificates, seed=0):
    """Yield documents of records, without their ids. Most name the certificate of their cell."""
    generator = random.Random(seed)
    for number in range(count):
        document = _build_document(generator, number, certificates)
        is_on_strange_machine = document["machine"]["cpu_model"].endswith("é")
        for change in (_make_external, _make_older, *[_make_strange] * is_on_strange_machine):
            if generator.random() < 0.1:
                change(generator, document)
        yield document


def format_pack_lines(documents):
    """Return the line of each document in a pack."""
    lines = []
    for document in documents:
        body = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        identity = hashlib.sha256(body.encode()).hexdigest()
        lines.append(f'{{"id":"sha256:{identity}",{body[1:]}\n'.encode())
    return lines


def write_single_files(store, documents):
    """Write each document without large integers to a file of its own."""
    for document in documents:
        if has_large_integer(document):
            continue
        content = {"id": digests.of_json(document), **document}
        path = store.record_path(content["id"][7:])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1))


def has_large_integer(value):
    """Return whether an integer is too large for the canonical form of JSON."""
    if isinstance(value, dict | list):
        return any(map(has_large_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and value >= 2**53


def _cell_fields(cell):
    defaults = {
        **{"framework": "torch", "environment": "managed", "workload": "lenet"},
        **{"kernel": "onednn", "threads": 1, "global_batch_size": 4, "batch_size_per_rank": 4},
        **{"data": "synthetic", "steps": 20},
    }
    return {**defaults, **cell}


def _build_document(generator, number, certificates):
    cell = Cell(**_cell_fields(generator.choice(CELLS)), seed=generator.choice((0, 0, 0, 1, 7)))
    session = generator.choice(SESSIONS)
    request = cell.request(generator.randint(1, 5)).model_copy(
        update={"session": session, "position": number + 1 if session else None}
    )
    status = generator.choices(
        ("ok", "failed", "invalid", "crashed", "unavailable"), (90, 3, 3, 2, 2)
    )[0]
    document = {
        "schema": "xfbench.record/1",
        "cell": digests.of_bytes(json.dumps(request.cell_digest_fields()).encode()),
        "created": f"{generator.choice(DAYS)}T00:00:{number % 60:02}.{number % 1000:03}Z",
        "source": "measured",
        "status": status,
        "reason": None if status == "ok" else f"reason {number % 3}",
        "request": request.model_dump(mode="json"),
        "workload": workload_facts(workloads()[cell.workload]).model_dump(mode="json"),
        "machine": generator.choice(MACHINES).model_dump(mode="json"),
        "software": generator.choice(SOFTWARE).model_dump(mode="json"),
        "certificate": _choose_certificate(generator, cell, certificates),
    }
    if status == "unavailable":
        return {**document, "software": None, "cell": generator.choice((None, document["cell"]))}
    document["observed"] = {
        **{
            "framework_version": generator.choice(("1.0",) * 20 + ("2.0",)),
            "threads": cell.threads,
        },
        **{"cpus": generator.choice((None, 0.9, 1.7)), "affinity": [0, 1], "kernel": cell.kernel},
        **{"kernel_evidence": ["a line"], "libraries": [], "layout": "NCHW"},
        **{"profiler": "a profiler", "handover_seconds": [1e-7] * generator.randint(0, 2)},
    }
    if status != "crashed":
        document["measurement"] = _build_measurement(generator, cell)
    if generator.random() < 0.5:
        document["limit"] = {
            **{"threads": 1, "precision": "float32", "matrix_product": 1e12 / 3},
            **{"memory_bandwidth": 1e10, "source": "measured"},
        }
    if cell.epochs:
        document["learning"] = [
            {
                **{"epoch": n + 1, "seconds": generator.uniform(1, 2), "train_loss": None},
                "test_loss": 1 / 3,
                "test_accuracy": generator.choices((None, 0.9, 0.96), (1, 20, 200 * n))[0],
            }
            for n in range(cell.epochs)
        ]
    if cell.ranks > 1:
        document["communication"] = {
            **{"strategy": cell.strategy, "bytes_per_step": 800 + number},
            "exposed_seconds": [generator.uniform(-0.01, 0.02) for _ in range(3)],
            "waiting_seconds": [1e-3] * generator.randint(0, 2),
            "compute_seconds": [0.05] * generator.randint(0, 2),
            "interface_bytes": {"lo": 5.5, "eth0": 7.1, "eth1": 1.0},
        }
    if cell.checkpoints and "measurement" in document:
        document["checkpoints"] = {
            **{"format": "plain", "file_system": generator.choice(("ext4", "xfs"))},
            **{"bytes": 10**6, "save_seconds": [0.1, generator.uniform(0.1, 0.3)]},
            **{"load_seconds": [0.02, 0.03], "wall_seconds": 0.5, "equal": True},
        }
    if cell.data_set:
        medium = {"file_system": "ext4", "device": "nvme", "block_bytes": 4096}
        document["storage"] = {
            "medium": {**medium, "total_bytes": 2**40, "free_bytes": 2**39},
            "reader": {
                **{"compared": 10, "differing": 3, "mean_difference": 0.1},
                **{"largest_difference": generator.randint(0, 9), "labels_equal": True},
            },
        }
    return document


def _choose_certificate(generator, cell, certificates):
    if cell.threads == 2 and generator.random() < 0.03:
        return generator.choice([*certificates, None, "missing"])
    names = ("framework", "workload", "ranks", "strategy")
    return next(
        identity
        for identity, proof in certificates.items()
        if all(getattr(proof.subject, name) == getattr(cell, name) for name in names)
    )


def _build_measurement(generator, cell):
    level = generator.choices((0.01, 1e-4, 7.0), (90, 3, 3))[0] * generator.lognormvariate(0, 0.1)
    steps = [level * generator.lognormvariate(0, 0.05) for _ in range(generator.choice((6, 20)))]
    if generator.random() < 0.1:
        steps[len(steps) // 2 :] = [2 * step for step in steps[len(steps) // 2 :]]
    measurement = {
        "startup_seconds": None if generator.random() < 0.02 else generator.random() * 3,
        **{"build_seconds": generator.random(), "first_step_seconds": 1 / 3},
        **{"warmup_seconds": steps[:2], "step_seconds": steps, "window": generator.choice((1, 5))},
        **{"wall_seconds": 1 + sum(steps), "images": 80, "losses": [2.3, None]},
        "peak_rss_bytes": generator.choice((10**8, 10**9, 2**62 + generator.randint(1, 99))),
        "energy_joules": generator.random() * 80 if cell.threads == 2 else None,
        "energy_seconds": generator.choice((None, 0.9, 1.5)),
        "phases": generator.choice(
            ({}, {"input_seconds": 0.01}, {"cpu_seconds": 2.0, "input_cpu_seconds": 0.3})
        ),
    }
    if cell.profile:
        parts = ("step", "update", "other", "forward/conv1", "backward/conv1", "forward/ip2")
        measurement["phases"] = {f"profile/{part}": generator.random() for part in parts}
    if cell.strategy == "ps" and generator.random() < 0.9:
        measurement["rank_step_seconds"] = [steps, [1.1 * step for step in steps]]
    return measurement


def _make_strange(generator, document):
    """Make a number impossible, implausible or too large, or leave something out."""
    measurement = document.get("measurement")
    kind = generator.randrange(6)
    if kind == 0:
        part, name, value = generator.choice(IMPOSSIBLE)
        if document.get(part):
            document[part] = {**document[part], name: value}
    elif kind == 1 and measurement:
        measurement["step_seconds"] = generator.choice(([], [1e-11, 1e-10], [1e12]))
    elif kind == 2 and measurement:
        measurement["peak_rss_bytes"] = 2**64 + 2**11  # possible, but too large for the index
    elif kind == 3:
        document["machine"] = document["workload"] = None
    elif kind == 4:
        document["request"] = None
    else:
        document["weather"] = {"\x00": [[{}]], "measurement": 1e300}
        document["request"] = {**(document["request"] or {}), "weather": "\x00"}


def _make_external(generator, document):
    """Say that xfbench did not measure the record, and keep what only a launch can fill."""
    document["source"] = generator.choice(("published", "imported"))
    document["figure"] = {"quantity": "time", "unit": "s", "value": generator.random()}
    if generator.random() < 0.5:
        document["citation"] = {"key": "Doe 2026", "title": "é", "where": "table 1"}


def _make_older(generator, document):
    """Leave out fields that earlier versions did not have."""
    for part, names in (
        ("request", ("session", "position", "checkpoints", "affinity", "seed", "memory_limit")),
        ("measurement", ("window", "phases", "rank_step_seconds", "energy_seconds")),
        ("observed", ("cpus", "handover_seconds", "profiler")),
    ):
        if document.get(part):
            document[part] = {
                name: value for name, value in document[part].items() if name not in names
            }
    if document["request"] and document["request"].get("ranks") == 1:
        for name in ("ranks", "device", "precision"):
            del document["request"][name]
    document.pop("cell", None)
