"""Every command in README.md and docs/ is run, page by page, in the order in which it stands.

Each page has a folder of its own with some results, data sets and a home. A command is run as it is
written but for what SMALLER says of sizes, PLACES of what stands for something of the reader's, and
INSTEAD of single ones; or it is in ELSEWHERE, with the reason. A new command is run as it is.
"""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

from tests.data.conftest import idx
from xfbench import adapter, cli, paths
from xfbench.environments import environment
from xfbench.results.store import Store

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
PROGRAMS = "xfbench make pytest python reframe sed sh export cp mv cat git pip uv".split()
LINE = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(PROGRAMS)}) \S")
# What makes a run small, in order: what is measured stays what is written.
SMALLER = (
    (r"^(xfbench run\b)(?!.*(--framework|--job))", r"\1 --framework torch"),
    (r"^(xfbench (run|tune|verify)\b.*--workload) (alexnet|caffenet)(?!.*photos)", r"\1 lenet"),
    (r"^(xfbench run\b)(?!.*--workload)", r"\1 --workload lenet"),
    (r"^(xfbench run\b.*)(--launches \d+|--until-precision \S+)", r"\1--launches 1"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--launches)", r"\1 --launches 1"),
    (r"^(xfbench run\b.*--epochs) \d+", r"\1 1"),
    (r"^(xfbench run\b.*--steps) \d+", r"\1 4"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--(steps|epochs))", r"\1 --steps 4"),
    (r"^(xfbench run\b.*--warmup) \d+", r"\1 0"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--warmup)", r"\1 --warmup 0"),
    (r"^(xfbench (?:run|tune)\b.*--batch-size) \d+", r"\1 8"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--(batch-size|epochs))", r"\1 --batch-size 8"),
    (r"^(xfbench run\b.*--seed) 0,1,2,3,4", r"\1 0,1"),
    (r"^(xfbench data\b.*--classes) 100", r"\1 2"),
    # That networks are equal is proven by tests of its own.
    (r"^(xfbench (?:run|tune)\b)(?!.*--no-verify)", r"\1 --no-verify"),
    # A search of so few settings is none; those that take long are tests/cli/test_tune.py's.
    (r"^(xfbench tune\b)(?!.*--over kernel)", r"\1 --over kernel=onednn"),
    (r"^(xfbench tune\b)(?!.*--over affinity)", r"\1 --over affinity=none"),
    (r"^(xfbench tune\b)(?!.*--over allocator)", r"\1 --over allocator=system"),
    # Jobs are submitted by tests/cluster/, mpirun is started by tests/launchers/: here the
    # scripts and commands.
    (r"^(xfbench run\b.*--launcher (slurm|mpi)\b)(?!.*--dry-run)", r"\1 --dry-run"),
    (r"--queue normal", ""),
    (r"^make ", f"make -n -C {ROOT} "),  # they take minutes, some are these tests
    (r"^pytest ", f"pytest --rootdir {ROOT} -p no:cacheprovider {ROOT}/xfbench/benchmarks "),
    (r"(--xfbench-framework)", r"--xfbench-workload lenet --xfbench-steps 1 \1"),
    (r"^reframe .*docs/reframe", lambda found: found[0].replace("docs/", f"{ROOT}/docs/")),
)
# What stands for something of the reader's.
PLACES = (
    (r"xfbench run \.\.\.", "xfbench run --framework torch"),
    (r"/opt/torch/bin/python|/path/to/python", "$TORCH"),
    (r"/scratch/ilsvrc2012", "$HOME/pictures"),
    (r"\bNAME\b(?= --workload)", "reference"),
    (r"\b29a81d7e7a1f\b", "$RECORD"),
    (r" (docs/example/)", rf" {ROOT}/\1"),
)
INSTEAD = {
    "xfbench verify --framework mxnet --workload caffenet --kernel all": (
        "xfbench verify --framework mxnet --workload lenet --kernel all"
    ),
    "xfbench run --framework torch --workload lenet --ranks 1,2,4 --nodes 1,2,4 --scaling weak "
    "--launcher slurm": (
        "xfbench run --framework torch --workload lenet --ranks 1,2 --scaling weak --no-verify "
        "--batch-size 8 --steps 10 --warmup 0 --launches 2 --threads 1 --affinity none"
    ),
    "python -m pip install 'ReFrame-HPC>=4.7'": (
        "python -m pip install --no-index --no-deps 'ReFrame-HPC>=4.7'"
    ),
    "sed -n 3p packs/*.ndjson | tr -d '\\n' | (printf '{'; tail -c +81) | sha256sum": (
        "(cd results && sed -n 3p packs/*.ndjson | tr -d '\\n' | (printf '{'; tail -c +81) "
        "| sha256sum | grep -q -f <(sed -n 3p packs/*.ndjson | grep -o '[0-9a-f]\\{64\\}' "
        "| head -1))"
    ),
}
STATUS = {  # where more than 0 may come of it, which the page says
    "xfbench doctor": {0, 1},
    "xfbench run --framework torch --workload lenet --strict": {0, 1, 2},
    "xfbench compare after before --fail-on slower:5%": {0, 1},
}
ELSEWHERE = {
    "xfbench predict --where affinity=none --to-ranks 64,1024": (
        "needs runs on nodes: tests/cluster/test_prediction.py"
    ),
    "xfbench run ... --launcher slurm --resume": "needs a job: tests/cluster/test_ends.py",
    "python -m tests.cluster --nodes 2 run --framework torch --workload lenet --ranks 2 "
    "--scaling weak --launcher slurm": "tests/cluster/test_cluster.py",
    "reframe -C docs/reframe/settings.py -c docs/reframe/xfbench_test.py -r --performance-report": (
        "eight cells: tests/test_reframe.py"
    ),
    "FRAMEWORKS=torch WORKLOADS=lenet reframe -C docs/reframe/settings.py -c "
    "docs/reframe/xfbench_test.py -r -S XfbenchTest.launches=10": "tests/test_reframe.py",
    **dict.fromkeys(
        (
            "export XFBENCH_WORKLOADS=$PWD/networks",
            "xfbench workload show smallnet",
            "xfbench verify --workload smallnet --framework reference,torch",
            "xfbench run --workload smallnet --framework torch --steps 20 --launches 5",
            "xfbench leaderboard --workload smallnet",
        ),
        "with the page's module: tests/workloads/test_own.py",
    ),
}
LONG = (  # many processes, or slow ones
    "xfbench run --framework tensorflow --workload convnet --kernel onednn,eigen,xla --launches 5",
    "xfbench run --framework tensorflow --workload alexnet --data photos-tfrecord "
    "--input ours,native",
    "pytest --benchmark-only --xfbench-framework torch,mxnet",
    "xfbench run --framework mxnet --strategy dist_async --strategy-options servers=2 --ranks 4 "
    "--scaling weak",
)


def blocks(text):
    """The lines of all blocks of code: fenced ones with their language, indented ones without."""
    fence = language = None
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,}|~{3,})\s*(\w*)", line)
        if mark and fence is None:
            fence, language = mark[1], mark[2]
        elif mark and line.strip().startswith(fence):
            fence = language = None
        elif fence is not None:
            yield language or "", line
        elif line.startswith("    "):
            yield "", line.strip()


def commands(page):
    """The commands of a page, in order, without the remarks behind them."""
    for language, line in blocks((ROOT / page).read_text()):
        text = re.sub(r"^\$ ", "", line.strip())
        if language in ("", "sh", "bash", "console", "shell") and LINE.match(text):
            yield re.sub(r"\s{2,}#.*", "", text)


def shortened(command):
    """As it is run here."""
    if command in INSTEAD:
        return INSTEAD[command]
    for pattern, instead in (*PLACES, *SMALLER):
        command = re.sub(pattern, instead, command)
    return command


ONCE: set[str] = set()  # runs that did what they are there for: the same again takes time alone
COMMANDS = {page: list(commands(page)) for page in PAGES}


@pytest.fixture(scope="session")
def torch():
    """PyTorch's interpreter."""
    return str(environment.ensure(adapter.load("torch")).interpreter)


@pytest.fixture
def reader(tmp_path, record, torch):
    """A reader's folder and environment: results, those of others, and data to prepare."""
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()
    seconds = 0.01  # of a step: no two launches have the same
    for where in ("results", "../node7/results", "../laptop/results"):
        store = Store((folder / where).resolve())
        store.prepare()
        for framework, threads, launch in product(("torch", "mxnet"), (1, 2), (1, 2, 3)):
            seconds *= 1.003
            made = {"framework": framework, "kernel": "onednn", "threads": threads}
            store.add(record((seconds,) * 12, launch, **made))
    (home / "mnist").mkdir(parents=True)
    random = np.random.RandomState(0)
    for prefix, count in (("train", 256), ("t10k", 64)):
        images, labels = random.randint(0, 256, (count, 28, 28)), random.randint(0, 10, count)
        (home / "mnist" / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (home / "mnist" / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
    for split in ("train", "val"):
        for label in ("n01", "n02"):
            there = home / "pictures" / split / label
            there.mkdir(parents=True)
            for number in range(8):
                pixels = random.randint(0, 256, (9, 8, 3), np.uint8)
                Image.fromarray(pixels).resize((280, 270)).save(there / f"{number}.JPEG")
    kept = {k: v for k, v in os.environ.items() if k not in ("XFBENCH_RESULTS", "XFBENCH_DATA")}
    [first, *_] = Store(folder / "results").records()
    variables = {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
        "HOME": str(home),
        "XFBENCH_HOME": str(paths.cache()),  # else environments would be made anew
        "XFBENCH_DATA": str(folder / "data"),
        "TORCH": torch,
        "RECORD": first.id[7:19],
    }

    def run(line, timeout=300):
        return subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    prepare = "xfbench data prepare folder --from $HOME/pictures"
    made = run(f"{prepare} --as photos --format tfrecord")
    assert made.returncode == 0, made.stderr
    made = run("xfbench results export theirs.tar.gz --results ../laptop/results")
    assert made.returncode == 0, made.stderr
    return run


def failures(wanted, reader):
    """Run the commands, in order; what is to be said of those that fail."""
    failed = []
    for command in wanted:
        line = shortened(command)
        if command in ELSEWHERE or line in ONCE:
            continue
        done = reader(line)
        if done.returncode not in STATUS.get(command, {0}):
            said = f"{done.returncode}: {done.stdout[-2000:]}{done.stderr}"
            failed.append(f"{command}\n  {line}\n  {said}")
        elif line.startswith("xfbench run "):
            ONCE.add(line)
    return "\n".join(failed)


@pytest.mark.parametrize("page", [page for page in PAGES if COMMANDS[page]])
def test_every_command_of_a_page_does_what_it_is_there_for(page, reader):
    quick = [command for command in COMMANDS[page] if command not in LONG]
    told = failures(quick, reader)
    assert not told, told


@pytest.mark.long
@pytest.mark.parametrize("command", LONG)
def test_the_commands_that_take_long_do_so_too(command, reader):
    told = failures([command], reader)
    assert not told, told


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_the_index_names_every_page():
    named = set(re.findall(r"\]\((\S+?\.md)\)", (ROOT / "docs/README.md").read_text()))
    assert named == {Path(page).name for page in PAGES} - {"README.md"}


def test_every_example_in_python_runs(reader):
    """Those of docs/python.md, one after another, of fewer steps and launches."""
    language = "python"
    text = "\n".join(
        x for kind, x in blocks((ROOT / "docs/python.md").read_text()) if kind == language
    )
    small = {"steps=20, launches=3": "steps=4, launches=1, batch_size=8, verify=False"}
    for written, instead in small.items():
        assert written in text
        text = text.replace(written, instead)
    done = reader(f"cat > example.py << 'END'\n{text}\nEND\npython example.py")
    assert done.returncode == 0, done.stderr
    assert "unknown framework 'torhc': did you mean torch?" in done.stdout
    assert "not_distinguishable" in done.stdout or "faster" in done.stdout or "None" in done.stdout


def test_what_is_said_of_single_commands_is_of_some_that_are_there():
    written = {command for page in PAGES for command in COMMANDS[page]}
    assert {*INSTEAD, *STATUS, *ELSEWHERE, *LONG} <= written
    for reason in ELSEWHERE.values():
        assert (ROOT / reason.split(": ")[-1]).is_file()


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/schema.md"])
def test_what_is_quoted_in_a_sentence_is_a_command_with_such_options(page):
    """Not run, but there: `xfbench leaderboard --columns costs`."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for quoted in re.findall(r"`xfbench\s+([^`]+)`", text):
        words, known = quoted.split(), typer.main.get_command(cli.app)
        while words and hasattr(known, "commands"):
            name = words.pop(0).partition("|")[0]
            if name.startswith("--") or name.isupper():
                break
            assert name in known.commands, f"{page}: xfbench {quoted}"
            known = known.commands[name]
        options = {option for one in known.params for option in one.opts} | {"--help"}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= options, f"{page}: xfbench {quoted}"
