"""Run tests on a mutation of the source, isolated from the user's checkout and processes.

A mutation is tried in its own namespaces, where a mutated copy is mounted over the checkout and an
overlay over the cache. Mutated code cannot kill processes of the user or change checkout and cache.
It can change `.venv` and all other files, so use a disposable machine.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.drawing import ROOT
from xfbench.base import paths

# The quick tests; tests marked `alone` measure the machine.
MARKERS = "not deep and not long and not alone"
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--timeout", "300", "-m", MARKERS)
PYTEST = (sys.executable, "-m", "pytest", *OPTIONS)
COMMAND = shlex.join([*PYTEST, "tests"])
LIMIT_S = 1800
NO_TESTS = 5  # pytest's exit status
# When `unshare` is killed, the kernel kills all processes of the namespace.
ISOLATION = ("unshare", "--mount-proc", "--pid", "--fork", "--kill-child")
ISOLATION += ("--user", "--map-current-user") if os.geteuid() else ()
MOUNT = """set -e
mount --bind "$2/.venv" "$1/source/.venv"
mount --rbind "$1/source" "$2"
mount -t overlay -o "$4" overlay "$3"
cd "$2"
shift 4
exec "$@"
"""


@dataclass(frozen=True)
class Verdict:
    """A verdict on a mutation.

    `status` is "caught", "survived" or "undecided". `test` is the failed test or the reason.
    """

    status: str
    test: str
    seconds: float


def list_tests(path):
    """Return the test files in the module's folder, and others that import or name the module."""
    parts = [part for part in Path(path).with_suffix("").parts if part != "__init__"]
    folders = parts[1:-1] if parts[0] == "xfbench" else parts[:1]
    imports = re.compile(rf"^\s*(from|import) .*\b{parts[-1]}\b", re.MULTILINE)
    ranks = {}
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        mirrored = bool(folders) and test.parent == ROOT / "tests" / folders[0]
        imported = bool(imports.search(test.read_text()))
        named = test.stem.startswith(f"test_{parts[-1]}")
        if mirrored or imported or named:
            rank = (not (imported or named), not mirrored, not named)
            ranks[test.relative_to(ROOT).as_posix()] = rank
    return sorted(ranks, key=ranks.get)


def copy_checkout(target):
    """Copy the files that git tracks or would track to `target`, and commit them there."""
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listing = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    commit = "git init -q && git add -A && git -c user.name=x -c user.email=x commit -qm x"
    subprocess.run(["sh", "-c", commit], cwd=target, check=True)


def run_isolated(folder, command, limit_s=LIMIT_S):
    """Run a command with `folder`/source in place of the checkout; return status and output.

    The status is None if the command takes longer than `limit_s`.
    """
    cache = paths.cache()
    # New layers, so that no files of earlier commands remain.
    layers = Path(tempfile.mkdtemp(prefix="layers-", dir=folder))
    for directory in (cache, folder / "source/.venv", layers / "cache", layers / "scratch"):
        directory.mkdir(parents=True, exist_ok=True)
    overlay = f"lowerdir={cache},upperdir={layers}/cache,workdir={layers}/scratch"
    overlay += ",userxattr" if os.geteuid() else ""
    with (folder / "output").open("w+b") as output:
        process = subprocess.Popen(
            [*ISOLATION, "sh", "-c", MOUNT, "sh", folder, ROOT, cache, overlay, *command],
            env={**os.environ, "PYTEST_DEBUG_TEMPROOT": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def try_mutation(mutation, commands, limit_s=LIMIT_S):
    """Run the commands in turn until a test fails that passes without the mutation."""
    begin = time.monotonic()

    def conclude(status, test=""):
        return Verdict(status, test, round(time.monotonic() - begin, 1))

    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # some tests are run by another user
        copy_checkout(folder / "source")
        file = folder / "source" / mutation.path
        original = file.read_text()
        for command in commands:
            file.write_text(mutation.source)
            status, output = run_isolated(folder, command, limit_s)
            if status in (0, NO_TESTS):
                continue
            if status is None:
                return conclude("undecided", f"more than {limit_s} s")
            match = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
            file.write_text(original)
            control_command = (
                [*PYTEST, "-m", "", match[1]] if match else [*command, "--collect-only"]
            )
            control = run_isolated(folder, control_command, limit_s)[0]
            if control != 0:
                reason = f"without it the exit status is {control}"
                return conclude("undecided", f"{reason}: {match[1] if match else output}")
            return conclude("caught", match[1] if match else "no test can be collected")
    return conclude("survived")


def find_obstacle():
    """Return why mutations cannot be isolated here; empty if they can."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        (Path(name) / "source").mkdir()
        status, output = run_isolated(Path(name), ["true"])
    return "" if status == 0 else f"no namespaces or overlays below {Path(name).parent}: {output}"
