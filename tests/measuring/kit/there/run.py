"""Run the items of a kit on a machine without xfbench, in order of value, and end in time.

    sh run.sh --minutes 5 --output DIR torch=python3 jax=python3

- Items that need the machine for themselves run one at a time, others several at a time.
- An item is not started if its estimated time does not fit. What runs at the end is ended.
- When an item ends, its files are appended to DIR/kit.tar.gz, as a gzip member of its own. So the
  archive is complete after each item, whatever ends this program.
- Items in an earlier archive are skipped: in DIR/kit.tar.gz, beside run.sh, or after --have.
  Inspections and facts are repeated, because another machine may have other answers.

The files of the kit stay as they are: each item runs in a copy of its folder.
"""

import argparse
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = "kit.tar.gz"
RESERVE_SECONDS = 3  # for ending the processes that still run
LEFT_OUT = (".pyz", ".partial")  # ends of the names of files that are not kept
MAX_TEXT_BYTES = 50_000  # of an output file
TIMED_OUT = 124  # the exit status of timeout(1), as in start.sh


class Archive:
    """The results: a file of gzip members, each with the tar entries of an item."""

    def __init__(self, path, max_bytes):
        self.path, self.max_bytes = path, max_bytes
        members, complete_bytes = read_members(path) if path.exists() else ([], 0)
        self.items = list_items(members)
        if path.exists():  # a kill may have cut off the last member
            os.truncate(path, complete_bytes)

    def append(self, files):
        """Append an item's files, by their names. Return whether they fit into the size limit."""
        buffer = io.BytesIO()
        tar = tarfile.TarFile(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        member = gzip.compress(buffer.getvalue())  # not closed: no mark of the archive's end
        size = self.path.stat().st_size if self.path.exists() else 0
        if size + len(member) > self.max_bytes:
            return False
        with self.path.open("ab") as file:
            file.write(member)
            file.flush()
            os.fsync(file.fileno())
        self.items |= list_items([buffer.getvalue()])
        return True


def read_members(path):
    """Return the contents of the complete gzip members, and the number of their bytes."""
    data, members, position = memoryview(path.read_bytes()), [], 0
    while position < len(data):
        reader = zlib.decompressobj(31)
        try:
            content = reader.decompress(data[position:])
        except zlib.error:
            break
        if not reader.eof:
            break
        members.append(content)
        position = len(data) - len(reader.unused_data)
    return members, position


def list_items(members):
    """Return the names of the items that ended."""
    names = set()
    for content in members:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            names |= {
                name[: -len("/status")] for name in tar.getnames() if name.endswith("/status")
            }
    return names


class Item:
    """An item that runs."""

    def __init__(self, item, scratch, interpreters):
        self.item, self.folder = item, scratch / item["name"]
        self.folder.parent.mkdir(exist_ok=True)
        self.folder.mkdir()
        self.inputs = set()
        for source in (HERE / item["name"]).glob("*"):
            name = source.name[: -len(".gz")] if source.suffix == ".gz" else source.name
            read = gzip.open if source.suffix == ".gz" else open
            with read(source, "rb") as packed, (self.folder / name).open("wb") as target:
                shutil.copyfileobj(packed, target)
            self.inputs.add(name)
        if item["inputs"]:
            shutil.copyfile(HERE / "inputs" / item["inputs"], self.folder / "inputs.npz")
            self.inputs.add("inputs.npz")
        if item["worker"]:
            shutil.copyfile(HERE / "workers" / item["worker"], self.folder / "worker.pyz")
        python = interpreters.get(item["framework"], sys.executable)
        variables = {"KIT": str(HERE), "PYTHON": python, "PYTHONNOUSERSITE": "1"}
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        self.began = time.monotonic()
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                ["sh", "-c", item["command"]],
                cwd=self.folder,
                env={**os.environ, **variables, **item["variables"]},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def seconds(self):
        return time.monotonic() - self.began

    def end(self):
        """End all processes of the item's session, also those in other process groups."""
        for _ in range(5):
            left = [pid for pid, session in list_sessions() if session == self.process.pid]
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            if not left:
                break
            time.sleep(0.1)

    def collect_files(self, *, timed_out):
        """Return the contents of the item's files by name, the exit status last."""
        files = {}
        for path in sorted(self.folder.iterdir()):
            name = path.name
            is_input = name in self.inputs and name != "request.json"
            if path.is_symlink() or not path.is_file() or is_input or name.endswith(LEFT_OUT):
                continue
            content = path.read_bytes()
            if name.startswith(("output", "stdout", "stderr")):
                content = content[-MAX_TEXT_BYTES:]
            files[name] = content
        code = self.process.returncode
        default = TIMED_OUT if timed_out else 128 - code if code and code < 0 else code
        status = files.pop("status", b"") if not timed_out else b""
        files["seconds"] = b"%.3f\n" % self.seconds
        files["status"] = status or b"%d\n" % (default or 0)
        return {f"{self.item['name']}/{name}": content for name, content in files.items()}


def list_sessions():
    """Yield the id and the session of each process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            yield int(folder.name), int(fields[3])


def describe_outcome(item, files):
    """Return whether the item ended well, and its figure or what went wrong."""
    own = {name.rpartition("/")[2]: content for name, content in files.items()}
    status = int(own["status"])
    try:
        reply = json.loads(own["reply.json"])
        outcome, reason = reply["status"], (reply.get("reason") or "").split("\n")[0]
    except (KeyError, ValueError):
        outcome, reason = "no reply", own.get("stderr", own["output"]).decode(errors="replace")
        lines = reason.strip().splitlines() or [""]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        reason = (errors or lines)[-1]
    if status == TIMED_OUT:
        return False, f"timed out after {item['limit']} s"
    if outcome != "ok" or status:
        return outcome == "unavailable", f"{outcome}, exit status {status}: {reason[:160]}"
    measurement = reply.get("measurement")
    if item["stage"] == "switches":
        request = json.loads(own["request.json"])["request"]
        return True, "; ".join(list_differences(reply, request)) or "NOT SEEN"
    if measurement and measurement["step_seconds"]:
        seconds = sorted(measurement["step_seconds"])[len(measurement["step_seconds"]) // 2]
        return True, f"{item['batch_size'] / seconds:.0f} images/s"
    unsupported = reply.get("unsupported") or {}
    return True, reply.get("summary") or next(iter(unsupported.values()), "ran")


def list_differences(reply, request):
    """Return what a launch shows that is not as requested."""
    observed = reply["observed"]
    differences = [
        f"{name} {observed[name]} was observed, not {request[name]}"
        for name in ("kernel", "precision")
        if observed.get(name) not in (None, request[name])
    ]
    others = [name for device in observed.get("gpus") or () for name in device["others"]]
    return differences + [f"other processes on the GPU: {', '.join(others)}"] * bool(others)


class Kit:
    """A run of the kit's items until they are done or `end` is reached."""

    def __init__(self, items, archive, interpreters, scratch, jobs, end):
        self.waiting, self.archive, self.interpreters = list(items), archive, interpreters
        self.scratch, self.jobs, self.end = scratch, jobs, end
        self.running, self.total, self.ended = [], len(items), 0
        self.bad, self.no_time, self.began = 0, 0, time.monotonic()

    def run(self):
        while self.waiting or self.running:
            if time.monotonic() >= self.end:
                break
            for each in list(self.running):
                timed_out = each.seconds > each.item["limit"]
                if timed_out or each.process.poll() is not None:
                    self._finish(each, timed_out)
            if not self._start_next():
                time.sleep(0.1)
        for each in self.running:
            each.end()
            self._print(each.item, "ended, because the time is over", each.seconds)
        self.no_time += len(self.waiting) + len(self.running)

    def _start_next(self):
        """Start the next item if it may start now. Return whether it was started or left out."""
        if not self.waiting:
            return False
        item = self.waiting[0]
        is_alone = item["alone"] or any(each.item["alone"] for each in self.running)
        if len(self.running) >= (1 if is_alone else self.jobs):
            return False
        self.waiting.pop(0)
        if time.monotonic() + item["seconds"] > self.end:
            self.no_time += 1
            return True
        try:
            self.running.append(Item(item, self.scratch, self.interpreters))
        except OSError as error:
            self.bad += 1
            self._print(item, f"not started: {error}", 0.0)
        return True

    def _finish(self, each, timed_out):
        self.running.remove(each)
        each.end()
        files = each.collect_files(timed_out=timed_out)
        is_well, outcome = describe_outcome(each.item, files)
        self.bad += not is_well
        if not self.archive.append(files):
            outcome += "; not kept: the archive is full"
        self._print(each.item, outcome, each.seconds)
        shutil.rmtree(each.folder, ignore_errors=True)

    def _print(self, item, outcome, seconds):
        self.ended += 1
        now = time.monotonic() - self.began
        line = f"{now:6.1f} s {self.ended}/{self.total} {item['title']}: {outcome}"
        print(f"{line} ({seconds:.1f} s)", flush=True)


def parse_arguments(frameworks):
    parser = argparse.ArgumentParser(
        prog="run.sh", usage="sh run.sh --output DIR [OPTION ...] FRAMEWORK=PYTHON ..."
    )
    parser.add_argument("--minutes", type=float, default=14.0, help="time for everything (14)")
    parser.add_argument("--output", type=Path, required=True, help="folder for the archive")
    parser.add_argument(
        "--have", type=Path, action="append", default=[], help="earlier archive (repeatable)"
    )
    parser.add_argument("--stage", help="run only these stages, such as facts,throughput")
    jobs = max(2, (os.cpu_count() or 1) // 3)
    parser.add_argument("--jobs", type=int, default=jobs, help=f"items at a time ({jobs})")
    parser.add_argument("--megabytes", type=float, default=16.0, help="limit of the archive (16)")
    parser.add_argument("pairs", nargs="*", metavar="FRAMEWORK=PYTHON")
    arguments = parser.parse_args()
    arguments.interpreters = {}
    for pair in arguments.pairs:
        name, sign, python = pair.partition("=")
        if not sign:
            parser.error(f"expected FRAMEWORK=PYTHON, not {pair}")
        if name not in frameworks:
            parser.error(f"this kit has no framework {name}")
        if not shutil.which(python):
            parser.error(f"{pair}: no such program")
        arguments.interpreters[name] = python
    return arguments


def main():
    began = time.monotonic()
    kit = json.loads((HERE / "kit.json").read_text())
    arguments = parse_arguments(kit["frameworks"])
    arguments.output.mkdir(parents=True, exist_ok=True)
    archive = Archive(arguments.output / ARCHIVE, int(arguments.megabytes * 1e6))
    done = set()
    for path in [*arguments.have, *HERE.glob("*.tar.gz")]:
        done |= list_items(read_members(path)[0])
    chosen = [
        item
        for item in kit["items"]
        if item["name"] not in archive.items
        and (item["always"] or item["name"] not in done)
        and (not arguments.stage or item["stage"] in arguments.stage.split(","))
        and (not item["framework"] or item["framework"] in arguments.interpreters)
    ]
    print(f"{len(chosen)} of {len(kit['items'])} items are to be run", flush=True)
    files = ("plan.json", "kit.json")
    if not archive.items:
        workers = {
            f"inspect/{name}/worker.pyz": (HERE / "workers" / f"{name}.pyz").read_bytes()
            for name in kit["frameworks"]
        }
        archive.append({**{name: (HERE / name).read_bytes() for name in files}, **workers})
    scratch = Path(tempfile.mkdtemp(prefix="xfbench-kit-"))
    (scratch / "interpreters").mkdir()
    for name, python in arguments.interpreters.items():
        (scratch / "interpreters" / name).write_text(f"{python}\n")
    end = began + arguments.minutes * 60 - RESERVE_SECONDS
    run = Kit(chosen, archive, arguments.interpreters, scratch, arguments.jobs, end)
    try:
        for signal_number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(signal_number, lambda *_: sys.exit(130))
        run.run()
    finally:
        for each in run.running:
            each.end()
        shutil.rmtree(scratch, ignore_errors=True)
    megabytes = archive.path.stat().st_size / 1e6
    print(
        f"{run.ended} items ended, {run.bad} badly; {run.no_time} had no time; "
        f"{archive.path}: {megabytes:.1f} MB"
    )
    sys.exit(bool(run.bad))


if __name__ == "__main__":
    main()
