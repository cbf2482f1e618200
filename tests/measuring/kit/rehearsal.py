"""Rehearse a kit on a CPU: `python -m tests.measuring.kit.rehearsal build/gpu-rehearsal`.

The kit is written, run without a network and with a read-only home, killed in the middle, and
continued. Its archive is imported after the kill, and twice at the end. Linux only: the namespaces
need root, or permission to create user namespaces.

JAX runs in a Python 3.12 with JAX 0.11, as on the lent machines. The interpreter is looked for on
PATH, in $PYENV_ROOT/versions/*/bin and in XFBENCH_PYTHONS (files or folders, separated by colons).
If none answers, xfbench's environment of JAX stands in.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests import nvml as fake_nvml
from tests.measuring.kit import report
from tests.measuring.kit.cells import SIZES, Size
from tests.measuring.kit.there import run as there
from tests.measuring.kit.writing import write_kit
from xfbench.environments import environment
from xfbench.model import adapter
from xfbench.model.certificate import Certificate, read_certificates
from xfbench.store.results_folder import Store

_RECORDING = "a100-that-works"
_PYTHON_VERSION, _JAX = "3.12", "jax==0.11.*"
_ANSWER = "import sys; print(*sys.version_info[:2], sep='.')"
_JAX_ANSWER = "import jax, numpy; print(jax.__version__)"
# A network namespace has its own loopback device, which is down. The home becomes read-only, but
# the output folder may be below it.
_ISOLATED = """
ip link set lo up 2> /dev/null
mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME" || exit 9
mount --bind "$OUTPUT" "$OUTPUT" && mount -o remount,bind,rw "$OUTPUT" || exit 9
! touch "$HOME/.writable" 2> /dev/null || exit 9
exec sh "$@"
"""


def list_candidates() -> Iterator[str]:
    """Yield interpreters that may be Python 3.12."""
    names = (f"python{_PYTHON_VERSION}", "python3")
    folders = os.environ.get("PATH", "").split(os.pathsep)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders += map(str, sorted(pyenv.glob("versions/*/bin")))
    for place in os.environ.get("XFBENCH_PYTHONS", "").split(os.pathsep):
        if place and Path(place).is_file():
            yield place
        folders.append(place)
    for folder in filter(None, folders):
        yield from (str(Path(folder, name)) for name in names if Path(folder, name).is_file())


def ask(python: str, code: str) -> str:
    """Return what the interpreter prints, or "" if it does not answer."""
    try:
        completed = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout.strip() if completed.returncode == 0 else ""


def find_jax(folder: Path, say: Callable[[str], None]) -> str:
    """Return an interpreter with JAX, if possible Python 3.12 with JAX 0.11 or later.

    If such a Python has no JAX, it is installed into a virtual environment in `folder`.
    """
    pythons = [each for each in list_candidates() if ask(each, _ANSWER) == _PYTHON_VERSION]
    for python in pythons:
        version = ask(python, _JAX_ANSWER)
        if version and tuple(map(int, version.split(".")[:2])) >= (0, 11):
            say(f"jax {version} in {python}")
            return python
    uv = Path(sys.executable).parent / "uv"
    for python in pythons[:1]:
        for command in (
            [uv, "venv", "--quiet", "--clear", "--python", python, folder],
            [
                *(uv, "pip", "install", "--quiet", "--only-binary", ":all:"),
                *("--python", folder / "bin/python", _JAX, "numpy"),
            ],
        ):
            subprocess.run(command, check=False)
        if version := ask(str(folder / "bin/python"), _JAX_ANSWER):
            say(f"jax {version} in a virtual environment of {python}")
            return str(folder / "bin/python")
    interpreter = str(environment.ensure_environment(adapter.load("jax")).interpreter)
    version, python_version = ask(interpreter, _JAX_ANSWER), ask(interpreter, _ANSWER)
    why = f"{_JAX} cannot be installed" if pythons else f"no Python {_PYTHON_VERSION} answers"
    say(f"{why}: jax {version} in Python {python_version} stands in")
    return interpreter


def can_isolate() -> bool:
    """Return whether this user may create the namespaces."""
    command = [*_build_unshare_command(), "mount", "--bind", "/tmp", "/tmp"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _build_unshare_command() -> list[str]:
    namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *namespaces, *(["--map-root-user"] if os.getuid() else [])]


def run_isolated(
    folder: Path, arguments: Sequence[str], kill_after: int | None = None
) -> tuple[list[str], int]:
    """Run the kit in `folder` without a network, with a read-only home and a library as NVML.

    Return the lines of its output, and its exit status.

    - `kill_after`: the number of ended items after which it is killed; None: it is not killed
    """
    output, nvml = folder / "output", folder / "nvml"
    command = [*_build_unshare_command(), "sh", "-c", _ISOLATED, "sh", str(folder / "kit/run.sh")]
    variables = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), "TMPDIR": "/tmp"}
    variables |= {"OUTPUT": str(output), "LD_LIBRARY_PATH": str(nvml)}
    variables["NVML_VALUES"] = str(nvml / "values")
    lines = []
    with subprocess.Popen(
        [*command, "--output", str(output), *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
            if kill_after and f" {kill_after}/" in line:
                process.kill()
                break
    return lines, process.returncode


def import_archive(archive: Path, results: Path, say: Callable[[str], None]) -> tuple[int, int]:
    """Import the archive. Return the numbers of records and certificates in the results folder."""
    command = [sys.executable, "-m", "xfbench", "results", "import", "--bundle", str(archive)]
    completed = subprocess.run(
        [*command, "--results", str(results)], capture_output=True, text=True, check=False
    )
    if completed.returncode not in (0, 1):  # 1: something is unavailable here
        raise SystemExit(f"the import failed:\n{completed.stdout}{completed.stderr}")
    records = list(Store(results).records())
    certificates = read_certificates(results)
    say(f"{archive}: {len(records)} records, {len(certificates)} certificates")
    return len(records), len(certificates)


def rehearse(
    folder: Path, size_name: str, kill_after: int, minutes: float, jax: str | None = None
) -> list[str]:
    """Rehearse in `folder`, and return what is wrong.

    - `kill_after`: the number of ended items after which the first run is killed
    - `minutes`: the limit of each of the two runs
    - `jax`: an interpreter with JAX; None: it is looked for
    """
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s {line}", flush=True)

    prepare(folder, SIZES[size_name])
    jax = jax or find_jax(folder / "jax", say)
    torch = environment.ensure_environment(adapter.load("torch")).interpreter
    say("the kit is written")
    archive, results = folder / "output" / there.ARCHIVE, folder / "results"
    arguments = ["--minutes", str(minutes), "--jobs", "2", f"torch={torch}", f"jax={jax}"]
    run_isolated(folder, arguments, kill_after)
    early = there.list_items(there.read_members(archive)[0])
    say(f"killed; {len(early)} items are in the archive")
    faults = [] if early else ["nothing was kept before the kill"]
    numbers_before = import_archive(archive, results, say)
    lines, status = run_isolated(folder, arguments)
    say("the kit was continued")
    if status:
        faults.append(f"the kit's exit status is {status}")
    items = json.loads((folder / "kit/kit.json").read_text())["items"]
    done = there.list_items(there.read_members(archive)[0])
    faults += [f"{item['title']} was not run" for item in items if item["name"] not in done]
    if f"{len(items) - len(early)} of {len(items)} items" not in lines[0]:
        faults.append(f"the continued run does not skip what the first one did: {lines[0].strip()}")
    numbers = import_archive(archive, results, say)
    if min(numbers[0] - numbers_before[0], numbers[1] - numbers_before[1]) < 0:
        faults.append("the import of everything has less than that of the first part")
    if import_archive(archive, results, say) != numbers:
        faults.append("importing twice changes something")
    faults += list_faults_of_results(results, folder / "kit")
    faults += list_faults_of_report(archive)
    say("done")
    return faults


def prepare(folder: Path, size: Size) -> None:
    """Write the kit and a library that plays NVML to `folder`, without an earlier rehearsal."""
    for name in ("kit", "output", "results", "nvml"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("output", "nvml"):
        (folder / name).mkdir(parents=True)
    fake_nvml.build(folder / "nvml")
    fake_nvml.replay(folder / "nvml" / "values", _RECORDING)
    write_kit(folder / "kit", size, lambda _: None)


def list_faults_of_report(archive: Path) -> list[str]:
    """Print the archive's report, and return what is wrong with it."""
    text = report.build_report(archive)
    print(text)
    faults = ["a switch was not seen"] if "NOT SEEN" in text else []
    for words in (fake_nvml.RECORDINGS[_RECORDING]["name"], "channels_last was requested: kernel"):
        if words not in text:
            faults.append(f"the report does not say: {words}")
    return faults


def list_faults_of_results(results: Path, kit: Path) -> list[str]:
    """Return what is wrong with the records and certificates of a rehearsal."""
    faults = []
    records = list(Store(results).records())
    planned = json.loads((kit / "plan.json").read_text())["requests"]
    if len(records) != len(planned):
        faults.append(f"{len(records)} records of {len(planned)} launches")
    for record in records:
        assert record.request
        status = "unavailable" if record.request.device == "cuda" else "ok"
        if record.status != status:
            faults.append(f"{record.request.label()}: {record.status}: {record.reason}")
    certificates = read_certificates(results).values()
    if not certificates:
        faults.append("there are no certificates")
    for certificate in certificates:
        if isinstance(certificate, Certificate) and _is_known_difference(certificate):
            print("different, as docs/findings.md#jax-bfloat16-bias says:", certificate.finding)
        elif not isinstance(certificate, Certificate) or certificate.verdict != "equal":
            faults.append(f"not equal: {certificate}")
    return faults


def _is_known_difference(certificate: Certificate) -> bool:
    """Return whether JAX summed the gradient of a bias in bfloat16 (docs/findings.md)."""
    subject = certificate.subject
    return (
        certificate.verdict == "different"
        and certificate.timed_batch is not None
        and (subject.framework, subject.device, subject.precision) == ("jax", "cpu", "bfloat16")
        and "bias is off" in (certificate.finding or "")
    )


def main() -> None:
    """Rehearse, and exit with status 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="rehearsal")
    parser.add_argument("--kill-after", type=int, default=15, help="ended items before the kill")
    parser.add_argument("--minutes", type=float, default=30.0, help="limit of each of two runs")
    arguments = parser.parse_args()
    if not can_isolate():
        sys.exit("the rehearsal needs namespaces: run it as root on Linux")
    folder = arguments.folder.absolute()
    faults = rehearse(folder, arguments.size, arguments.kill_after, arguments.minutes)
    for fault in faults:
        print(f"wrong: {fault}")
    print("the kit was rehearsed on a CPU; it is untested on a GPU")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
