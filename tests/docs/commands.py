"""The commands of README.md and docs/, and what the tests change in a command before they run it.

A new command on a page needs no entry here: it is parsed and run as it is written.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_FOLDERS = (
    *("docs", "docs/how-to", "docs/laptop", "docs/measured", "docs/reference", "docs/tutorials"),
)
_FILES = [file for folder in _FOLDERS for file in ROOT.glob(f"{folder}/*.md")]
PAGES = ["README.md", *sorted(str(file.relative_to(ROOT)) for file in _FILES)]
PROGRAMS = "xfbench make pytest python reframe sed sh export cp mv cat git pip uv".split()
LINE = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(PROGRAMS)}) \S")

# A page writes these for a path, a name or an id of the reader.
PLACEHOLDERS = (
    (r"xfbench run \.\.\.", "xfbench run --framework torch --workload lenet"),
    (r"/opt/(torch|old|new)/bin/python|/path/to/python|\./torch-2\.\d", "$TORCH"),
    (r"/scratch/ilsvrc2012", "$HOME/pictures"),
    (r"\bNAME\b(?= --workload)", "reference"),
    (r"\b29a81d7e7a1f\b", "$RECORD"),
    (r" --site \./mine\.toml", " --launcher slurm"),
    (r" (docs/(?:example|laptop)/)", rf" {ROOT}/\1"),
    (r"--classes 100\b", "--classes 2"),  # the tests' ImageNet has two
    (r"^make ", f"make -n -C {ROOT} "),  # a target takes minutes, and some start these tests
)

# Changes that make a run short; applied in this order.
SHORTENINGS = (
    (r"^(xfbench run\b)(?!.*(--framework|--job))", r"\1 --framework torch"),
    (r"^(xfbench (run|tune|verify)\b.*--workload) (alexnet|caffenet)(?!.*photos)", r"\1 lenet"),
    (r"^(xfbench run\b)(?!.*--workload)", r"\1 --workload lenet"),
    (r"^(xfbench run\b.*)(--launches \d+|--until-precision \S+|--until-ranked)", r"\1--launches 1"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--launches)", r"\1 --launches 1"),
    (r"^(xfbench run\b.*--epochs) \d+", r"\1 1"),
    (r"^(xfbench run\b.*--steps) \d+", r"\1 4"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--(steps|epochs))", r"\1 --steps 4"),
    (r"^(xfbench run\b.*--warmup) \d+", r"\1 0"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--warmup)", r"\1 --warmup 0"),
    (r"^(xfbench (?:run|tune)\b.*--batch-size) \d+", r"\1 8"),
    (r"^(xfbench (?:run|tune)\b)(?!.*--(batch-size|epochs))", r"\1 --batch-size 8"),
    (r"^(xfbench run\b.*--seed) 0,1,2,3,4", r"\1 0,1"),
    # tests/equality verifies networks.
    (r"^(xfbench (?:run|tune)\b)(?!.*--no-verify)", r"\1 --no-verify"),
    # tests/cli/test_tune.py searches larger spaces.
    (r"^(xfbench study run\b.*) --size laptop", r"\1 --size smoke"),
    (r"^(xfbench study run\b)(?!.*--launches)", r"\1 --launches 1"),
    (r"^(xfbench tune\b)(?!.*--over kernel)", r"\1 --over kernel=onednn"),
    (r"^(xfbench tune\b)(?!.*--over pinning)", r"\1 --over pinning=none"),
    (r"^(xfbench tune\b)(?!.*--over allocator)", r"\1 --over allocator=system"),
    # tests/cluster submits jobs, tests/launchers starts mpirun.
    (r"^(xfbench run\b.*--launcher (slurm|mpi)\b)(?!.*--dry-run)", r"\1 --dry-run"),
    (r"^pytest --pyargs xfbench ", "pytest "),
    (r"^pytest ", f"pytest --rootdir {ROOT} -p no:cacheprovider {ROOT}/xfbench/benchmarks "),
    (r"(--xfbench-framework)", r"--xfbench-workload lenet --xfbench-steps 1 \1"),
)

_TRY_WEAK_SCALING = (
    "xfbench run --framework torch --workload lenet --ranks 1,2 --scaling weak --no-verify "
    "--batch-size 8 --steps 10 --warmup 0 --launches 2 --threads 1 --pinning none"
)
REPLACEMENTS = {
    "xfbench verify --framework mxnet --workload caffenet --kernel all": (
        "xfbench verify --framework mxnet --workload lenet --kernel all"
    ),
    "xfbench run --framework torch --workload lenet --ranks 1,2,4 --nodes 1,2,4 --scaling weak "
    "--launcher slurm": _TRY_WEAK_SCALING,
    "xfbench run --framework torch --workload lenet --ranks 1,2,4 --nodes 1,2,4 --scaling weak "
    "--launches 5 --site ./mine.toml": _TRY_WEAK_SCALING,
    "python -m pip install 'ReFrame-HPC>=4.7'": (
        "python -m pip install --no-index --no-deps 'ReFrame-HPC>=4.7'"
    ),
    "sed -n 3p packs/*.ndjson | tr -d '\\n' | (printf '{'; tail -c +81) | sha256sum": (
        "(cd results && sed -n 3p packs/*.ndjson | tr -d '\\n' | (printf '{'; tail -c +81) "
        "| sha256sum | grep -q -f <(sed -n 3p packs/*.ndjson | grep -o '[0-9a-f]\\{64\\}' "
        "| head -1))"
    ),
}

# Commands that may exit with another status than 0, as their pages explain.
STATUS = {
    # Without such a run in the reader's folder, no record matches.
    "xfbench leaderboard --workload smallnet": {0, 1},
    "xfbench leaderboard --view layers --workload convnet": {0, 1},
    "xfbench leaderboard --where 'created>=2026-11' --where machine.cpu_model~epyc": {0, 1},
    "xfbench results list --where status!=ok --json": {0, 1},
    "xfbench results list --where 'conditions.other_cpus>0.5'": {0, 1},
    "xfbench doctor": {0, 1},
    "xfbench run --framework torch --workload lenet --strict": {0, 1, 2},
    "xfbench compare after before --fail-on slower:5% --must-find 10%": {0, 1},
    "xfbench compare after before --fail-on slower:5% --must-find 10% --markdown": {0, 1},
    "xfbench compare allocator=jemalloc allocator=system --fail-on slower:5% --must-find 10% "
    "--markdown": {0, 1},
    # The reader's records may give several tables, which --label refuses.
    "xfbench leaderboard --workload lenet --where device=cpu --format latex "
    "--label tab:lenet --caption 'Training throughput of LeNet on our machine.'": {0, 2},
}

# Commands that another test runs.
RUN_BY_OTHER_TESTS = {
    "xfbench study report architectures --with theirs.tar.gz --against P100": (
        "needs records of two machines: tests/studies/test_machine_comparison.py"
    ),
    "xfbench run --revisions HEAD~1,HEAD --framework torch --workload lenet --launches 5": (
        "needs a clone with history: tests/cli/test_revisions.py"
    ),
    "xfbench compare revision=NEW revision=OLD --fail-on slower:5% --must-find 10% --markdown": (
        "tests/cli/test_revisions.py"
    ),
    "xfbench compare python=new python=old --fail-on slower:5% --must-find 10%": (
        "tests/cli/test_revisions.py"
    ),
    "xfbench compare python=new python=old --fail-on slower:5% --must-find 10% --markdown": (
        "tests/cli/test_revisions.py"
    ),
    "xfbench compare python=new python=old": "tests/cli/test_revisions.py",
    **dict.fromkeys(
        (
            "xfbench predict --where affinity=none --to-ranks 64,1024",
            "xfbench predict --where framework=torch,scaling=weak --to-ranks 64,1024 "
            "--link 100Gbit,1us",
            "xfbench predict --where ranks=1 --to-ranks 64,1024 --link 100Gbit,1us",
        ),
        "needs runs on several nodes: tests/cluster/test_prediction.py",
    ),
    "xfbench compare ranks=4 ranks=1": "needs runs of several ranks: tests/cli/test_ranks.py",
    "xfbench tune --framework torch --workload lenet --show": (
        "needs a confirmed search: tests/cli/test_tune.py"
    ),
    "xfbench data convert tfrecord:/scratch/plants data/plants --size 256 "
    "--pattern 'train-*-of-00064' --pattern 'val-*' --features image=jpg,label=species": (
        "needs TFRecord files: tests/datasets/test_as_found.py"
    ),
    "xfbench run ... --launcher slurm --resume": "needs a job: tests/cluster/test_ends.py",
    **{
        command: "at size smoke: tests/studies/test_smoke.py"
        for page in (ROOT / "docs/laptop").glob("*.md")
        if page.stem != "thread-sweep"  # a tutorial reads its results
        for command in re.findall(r"xfbench study run [\w-]+ --size laptop.*", page.read_text())
    },
    "python -m tests.cluster --nodes 2 run --framework torch --workload lenet --ranks 2 "
    "--scaling weak --launcher slurm": "tests/cluster/test_cluster.py",
    "reframe -C docs/reframe/settings.py -c docs/reframe/xfbench_test.py -r --performance-report": (
        "tests/docs/test_reframe.py"
    ),
    "BUILDS=/opt/torch-2.1,/opt/torch-2.3 FRAMEWORKS=torch reframe -C docs/reframe/settings.py -c "
    "docs/reframe/xfbench_test.py -r --system cluster:cpu -S XfbenchTest.threads=48": (
        "tests/docs/test_reframe.py"
    ),
    "FRAMEWORKS=torch WORKLOADS=lenet reframe -C docs/reframe/settings.py -c "
    "docs/reframe/xfbench_test.py -r -S XfbenchTest.launches=10": "tests/docs/test_reframe.py",
    **dict.fromkeys(
        (
            "sh build/gpu-kit/run.sh --minutes 5 --output DIR torch=python3 jax=python3",
            "sh build/gpu-kit/run.sh --minutes 5 --output DIR2 --have DIR/kit.tar.gz "
            "torch=python3 jax=python3",
            "xfbench results import --bundle DIR/kit.tar.gz",
        ),
        "tests/measuring/test_kit.py",
    ),
    **dict.fromkeys(
        (
            "export XFBENCH_WORKLOADS=$PWD/networks",
            "xfbench workload show smallnet",
            "xfbench verify --workload smallnet --framework reference,torch",
            "xfbench run --workload smallnet --framework torch --steps 20 --launches 5",
            "xfbench leaderboard --workload smallnet",
        ),
        "tests/workloads/test_own.py",
    ),
}

HAS_DRY_RUN = re.compile(r"xfbench (run|tune|verify|study run|env create)\b")
# Commands without --dry-run that start a framework or watch the machine, and those that read what
# such a command writes.
ONLY_PARSED = (
    "xfbench data convert tfrecord:/scratch/plants data/plants --size 256 "
    "--pattern 'train-*-of-00064' --pattern 'val-*' --features image=jpg,label=species",
    "xfbench results import --bundle DIR/kit.tar.gz",
    "xfbench compare ranks=4 ranks=1",
    "xfbench compare allocator=jemalloc allocator=system --results allocators",
    "xfbench tune --framework torch --workload lenet --show",
    "xfbench compare after before --fail-on slower:5% --must-find 10%",
    "xfbench compare after before --fail-on slower:5% --must-find 10% --markdown",
    "xfbench results export before.tar.gz --results before",
    "xfbench results import before.tar.gz --results before",
    "xfbench compare allocator=jemalloc allocator=system --fail-on slower:5% --must-find 10% "
    "--markdown",
    "xfbench compare python=new python=old --fail-on slower:5% --must-find 10%",
    "xfbench compare python=new python=old --fail-on slower:5% --must-find 10% --markdown",
    "xfbench compare python=new python=old",
    "xfbench compare framework=torch,kernel=channels_last framework=mxnet,kernel=onednn",
    "xfbench compare revision=NEW revision=OLD --fail-on slower:5% --must-find 10% --markdown",
    "xfbench doctor",
    "xfbench env list",
    "xfbench machine",
    "xfbench machine --links",
    "xfbench predict --where affinity=none --to-ranks 64,1024",
    "xfbench predict --where affinity=none --to-ranks 64,1024 --link 100Gbit,1us",
    "xfbench predict --where framework=torch,scaling=weak --to-ranks 64,1024 --link 100Gbit,1us",
    "xfbench predict --where ranks=1 --to-ranks 64,1024 --link 100Gbit,1us",
    "xfbench report --results first --output first.html",
    "xfbench report --results example --output example.html",  # of hundreds of launches
    "xfbench results import --bundle ./away",
    "xfbench results import .benchmarks",
    "xfbench results import benchmarks.json",
    "xfbench run --framework torch --python torch=/opt/torch/bin/python --workload lenet",
    "xfbench run --framework torch --python torch:old=/opt/old/bin/python "
    "--python torch:new=/opt/new/bin/python",
    "xfbench run --revisions HEAD~1,HEAD --framework torch --workload lenet --launches 5",
    "xfbench study report ./batches.toml --output batches.html",
    "xfbench study report architectures --with theirs.tar.gz --against P100",
    "xfbench study report thread-sweep",
    "xfbench study report thread-sweep --output thread-sweep.html",
    "xfbench study report thread-sweep --with theirs.tar.gz --output both.html",
    "xfbench trace --framework caffe --workload lenet --output caffe.npz",
)

# Commands that take long even with the changes above.
SLOW = (
    "xfbench run --framework torch,tensorflow --workload lenet,convnet --launches 5",
    "xfbench run --framework torch,mxnet,tensorflow --workload lenet --until-ranked",
    "xfbench run --framework torch,tensorflow --workload convnet --launches 1 --profile",
    "xfbench run --framework torch --workload lenet --batch-size 512 --lars 0,0.5 "
    "--lr-scaling linear --lr-warmup 2 --epochs 10",
    "xfbench run --framework tensorflow --workload convnet --kernel onednn,eigen,xla --launches 5",
    "xfbench run --framework tensorflow --workload alexnet --data photos-tfrecord "
    "--loader xfbench,native",
)


def code_lines(text):
    """Yield (language, line) for each line of the code blocks in this Markdown text.

    Lines that a backslash joins are one line.
    """
    fence = language = None
    for line in re.sub(r" \\\n\s*", " ", text).splitlines():
        mark = re.match(r"\s*(`{3,}|~{3,})\s*(\w*)", line)
        if mark and fence is None:
            fence, language = mark[1], mark[2]
        elif mark and line.strip().startswith(fence):
            fence = language = None
        elif fence is not None:
            yield language or "", line
        elif line.startswith("    "):
            yield "", line.strip()


def join_code(page, language):
    """Return all code of this language on a page as one text."""
    lines = code_lines((ROOT / page).read_text())
    return "\n".join(line for block_language, line in lines if block_language == language)


def list_items(text):
    """Return the items of the lists in this Markdown text, each as one line."""
    items = re.findall(r"^- (.*(?:\n  .*\S.*)*)", text, re.MULTILINE)
    return [" ".join(item.split()) for item in items]


def find_commands(page):
    """Yield the commands of a page in their order, without trailing comments."""
    for language, line in code_lines((ROOT / page).read_text()):
        text = re.sub(r"^\$ ", "", line.strip())
        if language in ("", "sh", "bash", "console", "shell") and LINE.match(text):
            yield re.sub(r"\s{2,}#.*", "", text)


def is_harmless(command):
    """Return whether the command only reads and writes files, so that any test may run it."""
    return (
        command.startswith("xfbench ")
        and command not in ONLY_PARSED
        and not HAS_DRY_RUN.match(command)
    )


COMMANDS = {page: list(find_commands(page)) for page in PAGES}


def fill_placeholders(command):
    """Return the command with the reader's names, paths and ids in it."""
    for pattern, replacement in PLACEHOLDERS:
        command = re.sub(pattern, replacement, command)
    return command


def shorten(command):
    """Return the command as the tests run it."""
    if command in REPLACEMENTS:
        return REPLACEMENTS[command]
    command = fill_placeholders(command)
    for pattern, replacement in SHORTENINGS:
        command = re.sub(pattern, replacement, command)
    return command
