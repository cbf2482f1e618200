"""What reads others' files, each as a function of a file's bytes, and files to begin with.

A function ends, or raises what its reader says that it raises; anything else is a finding. It may
take a few seconds at most, and a few hundred MB.
"""

import atexit
import copy
import functools
import importlib
import io
import json
import os
import shutil
import struct
import tarfile
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from tests.hosts import host_files
from xfbench.analysis import leaderboard, series
from xfbench.base import digests, errors, foreign_names, processes, tool_output
from xfbench.base.processes import CommandError
from xfbench.datasets import encoding, lmdb, recordio, sources, tfrecord
from xfbench.environments import audit
from xfbench.exchange import archive, figures
from xfbench.host import machine, sites, striping
from xfbench.launchers import slurm
from xfbench.model import adapter, provenance, worker_reply
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.planning import experiment
from xfbench.rendering import record_listing, tables
from xfbench.rendering.report import page
from xfbench.store.tuning_results import Tuning
from xfbench.worker import cgroup, mounts, pictures, prepared, processor_models
from xfbench.worker.crc32c import crc32c
from xfbench.worker.formats import Damaged
from xfbench.worker.formats import recordio as recordio_reader
from xfbench.worker.samples import Sample, stream_digest

ROOT = Path(__file__).parents[2]
FINDINGS_FOLDER = Path(__file__).parent / "findings"  # a folder for each target
SAMPLE = Sample("a/0.png", 1, np.arange(12, dtype=np.uint8).reshape(3, 2, 2))
FOLDER = Path(tempfile.mkdtemp(prefix="xfbench-fuzz-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


class Target:
    """`read` is given a file's bytes, and refuses by `allowed`; `seeds` has some that it reads.

    `seconds` is for how long the tests look for findings.
    """

    def __init__(self, read, allowed, seeds, seconds=10):
        self.read, self.allowed, self.seeds, self.seconds = read, allowed, seeds, seconds

    def __call__(self, content):
        try:
            self.read(content)
        except self.allowed as error:
            assert str(error).splitlines()  # whoever tells of it has something to tell


def as_bytes_reader(name, read):
    """A reader of files as one of bytes."""
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)

    def read_content(content):
        path.write_bytes(content)
        return read(path)

    return read_content


def read_site(path):
    sites.load_site.cache_clear()
    try:
        sites.load_site(str(path))
    finally:
        sites.load_site.cache_clear()


def read_adapter(path):
    with mock.patch.dict(os.environ, XFBENCH_ADAPTERS=str(path.parents[1])):
        adapter.load(path.parent.name)


def make_set_reader(form):
    """The samples of a split in that format, as training reads them: to pixels."""
    module = importlib.import_module(f"xfbench.worker.formats.{form}")

    def read(path):
        folder = path.parents[1] if form == "lmdb" else path.parent
        for _, sample in zip(range(100), module.samples(folder, "train", None), strict=False):
            pictures.decode_pixels(sample)

    return read


def read_recordio(path):
    path.with_suffix(".idx").write_text("0\t0\n")
    make_set_reader("recordio")(path)


def read_example(content):
    """As a TFRecord's only record, whose checksums are right."""
    data = b""
    for part in (struct.pack("<Q", len(content)), content):
        crc = crc32c(part)
        data += part + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    as_bytes_reader("example/train.tfrecord", make_set_reader("tfrecord"))(data)


def read_sample_list(content):
    """A list of samples that is as long as its manifest says, with the digests that it has."""
    lines = content.decode(errors="replace").split("\n")[:-1]
    digests = [parts[2] for line in lines if len(parts := line.split("\t")) > 2]
    split = {"samples": len(lines), "stream_digest": stream_digest(digests)}
    manifest = {"classes": ["a", "b"], "shape": [3, 2, 2], "splits": {"train": split}}
    read = as_bytes_reader("listed/train.samples", lambda path: (path.parent, "train", manifest))
    prepared.read_sample_list(*read(content))


def read_mnist(content):
    """As the images to train with; the other files are as they should be, of one image."""
    for name, other_content in (
        *((f"{split}-labels-idx1-ubyte", struct.pack(">2IB", 2049, 1, 7)) for split in SPLITS),
        ("t10k-images-idx3-ubyte", IMAGE),
    ):
        as_bytes_reader(f"mnist/{name}", bool)(other_content)
    as_bytes_reader("mnist/train-images-idx3-ubyte", lambda path: sources.open_mnist(path.parent))(
        content
    )


def read_mountinfo(content):
    """As this process's mounts, which are those of lines with all fields."""
    text = os.fsdecode(content)
    found = mounts.list_mounts(text)
    assert len(found) <= text.count("\n") + 1
    for mount in found:
        assert mount.file_system and mount.public_options() is not None
        mounts._storage_kind(mount, [])


def read_groups(content):
    """As this process's groups, its mounts, and whatever its limits are: parts with a form feed."""
    groups, mountinfo, limit = (*content.split(b"\f"), b"", b"", b"")[:3]
    (FOLDER / "groups").write_bytes(groups)
    text, visible = limit.decode(errors="replace"), mounts.list_mounts(os.fsdecode(mountinfo))
    with (
        mock.patch.object(cgroup, "_PROCESS_GROUPS", FOLDER / "groups"),
        mock.patch.object(cgroup, "_ROOT", FOLDER),
        mock.patch.object(cgroup, "list_mounts", lambda: visible),
        mock.patch.object(cgroup, "read_system_file", lambda path: text.strip()),
    ):
        limits = cgroup.cpu_limit(), cgroup.memory_limit_bytes()
        cgroup.free_memory_below_limit_bytes(), cgroup.throttled_seconds()
        assert all(limit is None or limit >= 0 for limit in limits)
        assert all(limit is None for limit in limits) or any(each.isdigit() for each in text)


def read_nvidia_smi(content):
    """As what the program prints: each line is a model or a message, and nothing is lost."""
    text = content.decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    with mock.patch.object(processes, "output", lambda *_, **__: text):
        models = machine.list_accelerator_models.__wrapped__()
        messages = machine.list_accelerator_messages.__wrapped__()
        with mock.patch.object(machine, "list_accelerator_models", lambda: models):
            machine.list_accelerator_processes()
    none_found = [line for line in lines if line.lower().startswith("no devices")]
    assert sorted([*models, *messages]) == sorted(set_aside(lines, none_found))


def set_aside(lines, others):
    """Return the lines that are not among `others`."""
    return [line for line in lines if line not in others]


def describe_hosts(name):
    """The texts that the described hosts have under this name."""
    hosts = host_files.DESCRIPTIONS.values()
    return sorted({host[name].encode() for host in hosts if name in host})


def read_advisories(path):
    """As a file of flaws of a lock's package, so that versions are compared."""
    audit.compare([ROOT / "xfbench/environments/allocators.lock"], [path])


def read_other_picture(path):
    sources._read_image_sample(path, "a", 0)


def read_unindexed(path):
    for _, sample in zip(range(100), recordio_reader.read_files([path]), strict=False):
        pictures.decode_pixels(sample)


def read_label_list(path):
    (path.parent / "val").mkdir(exist_ok=True)
    (path.parent / "val" / "a.png").write_bytes(PNG)
    listed = sources._read_label_list(path, path.parent / "val")
    sources._check_listed_labels(path, listed, ["ant", "bee"])


def encode_other_pictures():
    """The same picture in formats that are decoded when a data set is made."""
    files = []
    for kind in ("WEBP", "TIFF", "GIF", "BMP", "PPM"):
        file = io.BytesIO()
        pictures.image_from_pixels(SAMPLE.image).save(file, kind)
        files.append(file.getvalue())
    return files


def read_foreign(path):
    figures._read_records(path, str.splitlines, str.splitlines)


def hide_names(content):
    """Names are found in a text, and hidden in it: as many as its lines may have."""
    text = content.decode(errors="replace")
    document = {"job_nodelist": text.split("\n"), "name": text}
    names = foreign_names.collect_private_names(document)
    foreign_names.make_private_text_redactor(names)(text)


def iterate_places(value):
    """Where something stands in a document: what holds it, and by which key."""
    keys = value if isinstance(value, dict) else range(min(len(value), 4))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from iterate_places(value[key])


def read_forged_record(content):
    """A real record in which the bytes say what is changed into what, sealed anew, as it is shown.

    So it has the digest that it says, which a file whose bytes were changed never has.
    """
    numbers = iter(content)
    varied_records = load_varied_records()
    document = copy.deepcopy(varied_records[next(numbers, 0) % len(varied_records)])
    for _ in range(next(numbers, 0) % 4):
        changeable = list(iterate_places(document))
        holder, key = changeable[(256 * next(numbers, 0) + next(numbers, 0)) % len(changeable)]
        holder[key] = FORGED[next(numbers, 0) % len(FORGED)]
    document.pop("id", None)
    document["id"] = digests.of_json(document)
    record = Record.read(json.dumps(document).encode())
    record_listing.format_table([record])
    series.build_scaling_series([provenance.drop_untrusted_or_impossible_fields(record)])
    changeable = leaderboard.build_tables([record], {})
    for form in tables.FORMATS.values():
        for columns in tables.COLUMNS:
            form(changeable, columns)
    page.render_report([record], {}, (), [])


def write_data_set(format_module, name):
    """The file of a set of one sample."""
    folder = FOLDER / "written" / name
    folder.mkdir(parents=True)
    writer = format_module.Writer(folder, "train", 0)
    writer.add(SAMPLE)
    writer.close()
    return [(folder / name).read_bytes()]


def read_files(pattern):
    return [path.read_bytes() for path in sorted(ROOT.glob(pattern))]


def read_real_documents(kind):
    """Two real records, or certificates."""
    source = min(ROOT.glob("docs/laptop/*.tar.gz"))
    with tarfile.open(source) as tar:
        names = [name for name in tar.getnames() if name.startswith(kind)]
        return [tar.extractfile(name).read() for name in names[:2]]


@functools.cache
def load_varied_records():
    """The first record of each archive: what one has that others have not."""
    documents = []
    for source in sorted(ROOT.glob("docs/laptop/*.tar.gz")):
        with tarfile.open(source) as tar:
            name = next(name for name in tar.getnames() if name.startswith("records/"))
            documents.append(json.loads(tar.extractfile(name).read()))
    return documents


def build_archive():
    """An archive of a record."""
    [content, *_] = read_real_documents("records/")
    name = f"records/{json.loads(content)['id'][7:]}.json"
    entries = {name: {"bytes": len(content), "digest": digests.of_bytes(content)}}
    manifest = json.dumps({"schema": archive.SCHEMA, "files": entries}).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, data in ((name, content), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return [buffer.getvalue()]


def build_tool_outputs():
    """About the least that each of the other tools writes."""
    events = [
        *(("submission_benchmark", "resnet"), ("global_batch_size", 32), ("run_start", None)),
        *(("eval_accuracy", 0.7), ("run_stop", None)),
    ]
    lines = [
        json.dumps(
            {"key": key, "value": value, "time_ms": 1000 + n, "event_type": "", "metadata": {}}
        )
        for n, (key, value) in enumerate(events)
    ]
    stats = {"median": 1.0, "min": 0.9, "max": 1.1, "rounds": 5, "iterations": 1, "data": [1.0]}
    benchmark = {
        "name": "test_a[1]",
        "fullname": "a.py::test_a[1]",
        "params": {"n": 1},
        "stats": stats,
    }
    saved = {
        "machine_info": {"node": "n", "cpu": {}},
        "benchmarks": [benchmark],
        "version": "5.1.0",
    }
    saved |= {"datetime": "2026-11-22T00:00:00+00:00", "commit_info": {}}
    case = {"name": "Speed", "result": "pass", "perfvalues": {"a:b:speed": [1, 2, -1, 1, "s"]}}
    case |= {"display_name": "Speed %.nid=cn0107", "job_nodelist": ["cn0107", "cn[0108-0109]"]}
    information = {"data_version": "4.0", "time_end_unix": 1.6e9, "user": "weber"}
    session = {"session_info": information, "runs": [{"testcases": [case]}]}
    mlperf_log = "".join(f":::MLLOG {line}\n" for line in lines)
    return [text.encode() for text in (mlperf_log, json.dumps(saved), json.dumps(session))]


def as_text_reader(read):
    """A reader of what a program printed as one of bytes."""
    return lambda content: read(content.decode(errors="replace"))


SPLITS = ("train", "t10k")
FORGED = [
    *(None, True, 0, -1, 3, 2**63, 10**400, 0.1, -0.5, 1e-320, 1e308, -1e308, "", "a", "1e999"),
    *("\u202e", "x" * 3000, "torch", "ok", [], [None], {}, {"a": 1}, [0.0] * 9, [1e308] * 9),
]
USAGE, WORDS, DAMAGED = (errors.UsageError,), (ValueError,), (Damaged,)
PNG, JPEG = encoding.encode_png(SAMPLE.image), encoding.encode_jpeg(SAMPLE.image, 90)
IMAGE = struct.pack(">4I", 2051, 1, 1, 1) + b"\1"
REPLY = {"job": "sha256:1", "status": "failed", "reason": "why", "traceback": ""}
ADVISORY = {
    "id": "DSA-1",
    "affected": [
        {
            "package": {"ecosystem": "Debian:11", "name": "jemalloc"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "5.3-1"}]}],
            "versions": ["5.2.1-3"],
        }
    ],
}
TARGETS = {
    "experiment": Target(
        as_bytes_reader("mine.toml", lambda path: experiment.load(str(path))),
        USAGE,
        read_files("xfbench/planning/experiments/*.toml"),
    ),
    "site": Target(
        as_bytes_reader("site.toml", read_site), USAGE, read_files("launchers/sites/*.toml")
    ),
    "advisories": Target(
        as_bytes_reader("advisories.json", read_advisories),
        USAGE,
        [json.dumps([ADVISORY]).encode()],
    ),
    "adapter": Target(
        as_bytes_reader("own/adapter.toml", read_adapter), USAGE, read_files("adapters/*/*.toml")
    ),
    "record": Target(Record.read, WORDS, read_real_documents("records/")),
    "forged": Target(
        read_forged_record, WORDS, [bytes([n, n % 4, *range(n, n + 9)]) for n in range(9)]
    ),
    "certificate": Target(Certificate.read, WORDS, read_real_documents("certificates/")),
    "tuning": Target(Tuning.read, WORDS, [b'{"schema": "xfbench.tuning/1", "id": "sha256:1"}']),
    "reply": Target(
        as_bytes_reader("reply.json", lambda path: worker_reply.read_reply(path, REPLY["job"])),
        WORDS,
        [json.dumps(REPLY).encode()],
    ),
    "archive": Target(
        as_bytes_reader(
            "all.tar", lambda path: list(archive.read_members_then_check_manifest(path))
        ),
        USAGE,
        build_archive(),
    ),
    "foreign": Target(as_bytes_reader("foreign.json", read_foreign), USAGE, build_tool_outputs()),
    "names": Target(
        hide_names,
        (),
        [b"cn[0107-0109,0200]-ib", b"Test %.nid=cn0107 %x.user=weber", b"/home/weber/cn0107.x.org"],
        seconds=2,
    ),
    "manifest": Target(
        as_bytes_reader("set/manifest.json", lambda path: prepared.read_manifest(path.parent)),
        DAMAGED,
        [b'{"schema": "xfbench.data/1", "format": "raw", "splits": {"train": {}}}'],
    ),
    "listed": Target(read_sample_list, DAMAGED, [b"a/0.png\t1\tsha256:00\n"]),
    "tfrecord": Target(
        as_bytes_reader("tf/train.tfrecord", make_set_reader("tfrecord")),
        DAMAGED,
        write_data_set(tfrecord, "train.tfrecord"),
    ),
    "example": Target(
        read_example, DAMAGED, [tfrecord.encode_example(encoding.encode_image(PNG, "a"), 1, "a")]
    ),
    "recordio": Target(
        as_bytes_reader("rec/train.rec", read_recordio),
        DAMAGED,
        write_data_set(recordio, "train.rec"),
    ),
    "lmdb": Target(
        as_bytes_reader("db/train.lmdb/data.mdb", make_set_reader("lmdb")),
        DAMAGED,
        write_data_set(lmdb, "train.lmdb/data.mdb"),
    ),
    "sbatch": Target(as_text_reader(slurm.parse_job_number), (CommandError,), [b"Hi\n7;north\n"]),
    "rejection": Target(
        as_text_reader(
            lambda text: slurm.describe_rejection(CommandError(f"sbatch failed: {text}"))
        ),
        WORDS,
        [b"Hi\nsbatch: error: no\nsbatch: fatal: b\n"],
    ),
    "squeue": Target(as_text_reader(slurm.parse_queue), WORDS, [b"Hi\n7_1\n"]),
    "scontrol": Target(
        as_text_reader(lambda text: slurm.parse_job_listing(text, "7")),
        WORDS,
        [b"Hi\nJobId=7 JobName=x JobState=PENDING Reason=Priority\n"],
    ),
    "getstripe": Target(
        as_text_reader(striping.parse_layouts),
        (),
        [b"/a\nlmm_stripe_count:  4\nlmm_stripe_size:   65536\n    lcme_flags:   init,^a\n"],
    ),
    "modules": Target(
        as_text_reader(tool_output.parse_variables), WORDS, [b"A=b c\0Hi, n=1\0X=1\n2\0"]
    ),
    "unindexed": Target(
        as_bytes_reader("unindexed/train.rec", read_unindexed),
        DAMAGED,
        [(FOLDER / "written/train.rec/train.rec").read_bytes()],
    ),
    "other_picture": Target(
        as_bytes_reader("other.tif", read_other_picture), DAMAGED, encode_other_pictures()
    ),
    "label_list": Target(
        as_bytes_reader("labels/val.txt", read_label_list), DAMAGED, [b"a.png 0\n", b"a.png\t1\r\n"]
    ),
    "mnist": Target(read_mnist, DAMAGED, [IMAGE]),
    "cpuinfo": Target(
        as_bytes_reader(
            "cpuinfo",
            lambda path: processor_models.find_model(processor_models.read_processor_fields(path)),
        ),
        (),
        describe_hosts("cpuinfo"),
        seconds=2,
    ),
    "mountinfo": Target(read_mountinfo, (), describe_hosts("mountinfo"), seconds=2),
    "cgroup": Target(
        read_groups,
        (),
        [
            *(text + b"\f\f150000 100000" for text in describe_hosts("cgroup")),
            b"3:cpu,memory:/a/b\f1 1 0:1 /a / rw - cgroup none rw,cpu,memory\f-1",
        ],
        seconds=2,
    ),
    "nvidia-smi": Target(read_nvidia_smi, (), describe_hosts("nvidia_smi"), seconds=2),
    "picture": Target(
        lambda content: pictures.decode_pixels(Sample("a", 0, content), 3), DAMAGED, [PNG, JPEG]
    ),
}
