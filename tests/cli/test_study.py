"""Tests of `xfbench study`: list, run, interrupt and resume, report."""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from xfbench.planning import experiment

STUDY = """
name = "mine"
title = "Batches of mine"
question = "Does a batch of mine matter?"
sources = ["Doe20"]
method = "It is tried."
limits = ["Nothing else is."]

[[matrix]]
size = "smoke"
framework = ["reference"]
workload = ["lenet"]
data = "synthetic"
batch_size = [2, 4]
steps = 2
warmup = 1
launches = 2

[[matrix]]
size = "smoke"
framework = ["reference"]
workload = ["alexnet"]
data = "digits"
steps = 2
launches = 2

[[analysis]]
name = "ratio"
title = "Speed-up by the batch"
over = "batch_size"
plot = "bars"
beside = "speed-up"

[[analysis.claim]]
source = "Doe20"
text = "A batch of 4 is 1 to 100 times as fast as one of 2"
where = { batch_size = 4 }
low = 1.0
high = 100.0

[[published]]
citation = { key = "Doe20", title = "On batches", where = "table 3" }
[published.figure]
quantity = "speed-up"
unit = "times"
low = 1.5
high = 2.5
relative_to = "a batch of 2"
about = { workload = "lenet", global_batch_size = 4 }
"""


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    """A folder with one study."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.toml").write_text(STUDY)
    return folder


@pytest.fixture
def study_name(study_folder, monkeypatch):
    """The name of a study in the user's folder."""
    monkeypatch.setenv("XFBENCH_STUDIES", str(study_folder))
    return "mine"


@pytest.fixture(scope="module")
def measured_study(study_folder, tmp_path_factory):
    """The answer of the study, and its results folder. Tests work on copies of the folder."""
    folder = tmp_path_factory.mktemp("measured") / "results"
    completed = run_study(study_folder, folder, "--json")
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout), folder


@pytest.fixture
def results(measured_study, tmp_path):
    """A copy of the results of `measured_study` in the folder of the command."""
    return shutil.copytree(measured_study[1], tmp_path / "results")


def test_a_report_is_of_the_chosen_records(study_name, run_inline, results):
    words = f"study report {study_name} -f reference -w lenet --where launch=1 --json".split()
    answer = json.loads(run_inline(*words).stdout)
    assert answer["launches"] == 2
    limits = " ".join(answer["limits"])
    assert "Only records with request.launch=1 and request.framework in" in limits
    everything = json.loads(run_inline(*f"study report {study_name} --json".split()).stdout)
    assert everything["launches"] == 4
    assert not any("Only records" in limit for limit in everything["limits"])


def test_a_run_takes_the_short_option_of_frameworks(study_name, run_inline):
    outcome = run_inline(*f"study run {study_name} -f torch --dry-run".split())
    assert outcome.returncode == 2 and "torch" in outcome.stderr


def test_a_dry_run_tells_apart_cells_that_differ_in_a_hidden_setting(tmp_path, run_inline):
    matrix, rest = STUDY[STUDY.index("[[matrix]]") :].split("\n[[matrix]]", 1)
    cells = "\n".join(
        matrix.replace("[2, 4]", "2").replace("synthetic", data) + f"sync_every = {window}\n"
        for data, window in (("synthetic", 1), ("synthetic", 2), ("digits", 2))
    )
    study = tmp_path / "windows.toml"
    head = STUDY.partition("[[matrix]]")[0].replace('"mine"', '"windows"')
    study.write_text(f"{head}{cells}\n{rest[rest.index('[[analysis]]') :]}")
    outcome = run_inline(*f"study run {study} --dry-run".split())
    assert outcome.returncode == 0, outcome.stderr
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("lenet")]
    assert sorted(line.partition(" · batch 2 · ")[2].rpartition(" · ")[0] for line in lines) == [
        "windows of 1 · data synthetic",
        "windows of 2 · data digits",
        "windows of 2 · data synthetic",
    ]


def study_command(folder, *options):
    # Background sessions ignore interrupts, and the command would inherit this.
    xfbench = ["env", "--default-signal=INT", sys.executable, "-m", "xfbench"]
    return [*xfbench, *"study run mine --no-verify --results".split(), str(folder), *options]


def run_study(study_folder, folder, *options):
    return subprocess.run(
        study_command(folder, *options),
        env={**os.environ, "XFBENCH_STUDIES": str(study_folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def requests_and_statuses(folder):
    """Return the requests of a folder, without their sessions, and how they ended."""
    records = [json.loads(file.read_text()) for file in folder.glob("records/*/*.json")]
    for record in records:
        del record["request"]["session"], record["request"]["position"]
    return sorted(
        (json.dumps(record["request"], sort_keys=True), record["status"]) for record in records
    )


def test_every_study_is_listed_with_question_and_sizes(run_inline, study_name):
    studies = json.loads(run_inline("study", "list", "--json").stdout)["studies"]
    assert {study["name"] for study in studies} == {*experiment.list_names()}
    assert {"name", "title", "question", "citation", "sizes"} == set(studies[0])
    outcome = run_inline("study", "list").stdout
    assert "thread-sweep" in outcome and "Does a batch of mine matter?" in outcome


def test_show_has_the_published_figures_of_a_study(run_inline, study_name):
    outcome = run_inline("study", "show", study_name)
    assert outcome.returncode == 0, outcome.stderr
    assert "Doe20" in outcome.stdout and "1.5–2.5 times" in outcome.stdout


def test_a_study_answers_its_question_and_names_what_is_missing(measured_study):
    document, _ = measured_study
    [finding] = document["findings"]
    [value] = [claim_value for claim_value in finding["values"] if claim_value["interval"]]
    assert value["interval"]["launches"] == 2 and value["label"] == "smoke"
    assert [claim["verdict"] for claim in finding["judged"]] != []
    [missing] = document["missing"]
    assert "alexnet" in missing["cell"] and "unsupported" in missing["reason"]


def read_repeat_command(markdown):
    """Return the last line of an answer, which repeats the study, as words after `xfbench`."""
    *_, heading, command = filter(None, markdown.splitlines())
    assert heading == "## To repeat it"
    return shlex.split(command)[1:]


def test_the_command_that_repeats_a_study_names_its_file_and_results(
    run_inline, study_folder, measured_study, tmp_path
):
    results, file = tmp_path / "other results", tmp_path / "mine.toml"
    shutil.copytree(measured_study[1], results)
    shutil.copy(study_folder / "mine.toml", file)
    markdown = run_inline("study", "report", "./mine.toml", "--results", results).stdout
    words = read_repeat_command(markdown)
    assert words[2:] == ["./mine.toml", "--size", "smoke", "--results", str(results)]
    plan = json.loads(run_inline(*words, "--dry-run", "--resume", "--json").stdout)
    unsupported = 2
    assert plan["launches"] == unsupported
    outcome = run_inline(*words, "--resume")  # launches nothing that a framework runs
    assert read_repeat_command(outcome.stdout) == words, outcome.stderr


def test_the_command_that_repeats_a_study_gives_the_same_cells(run_inline, study_folder, tmp_path):
    """Of the frameworks and networks of the study, the run has some, with other launches."""
    text = STUDY.replace('["reference"]', '["reference", "torch"]', 1)
    (tmp_path / "mine.toml").write_text(text)
    chosen = "-f reference -w lenet,alexnet --launches 1".split()
    run = run_inline("study", "run", "./mine.toml", "--no-verify", *chosen)
    assert run.returncode == 0, run.stderr
    words = read_repeat_command(run.stdout)
    assert words[5:] == ["--framework", "reference", "--launches", "1"]
    first, again = (
        json.loads(run_inline(*start, "--dry-run", "--json").stdout)
        for start in (["study", "run", "./mine.toml", *chosen], words)
    )
    assert sorted(map(json.dumps, again["cells"])) == sorted(map(json.dumps, first["cells"]))
    report = json.loads(run_inline(*"study report ./mine.toml -w lenet --json".split()).stdout)
    assert shlex.split(report["command"])[6:] == (
        "--framework reference --workload lenet --launches 1".split()
    )


def test_cells_that_a_run_leaves_out_are_missing_in_its_answer_and_its_archive(
    run_inline, tmp_path
):
    head, matrix, rest = STUDY.split("[[matrix]]")
    matrix = matrix.replace("[2, 4]", "2\nthreads = [1, 4096]")
    file = tmp_path / "mine.toml"
    file.write_text(f"{head}[[matrix]]{matrix}{rest[rest.index('[[analysis]]') :]}")
    words = f"study run {file} --launches 1 --no-verify --json".split()
    run = run_inline(*words)
    assert run.returncode == 0, run.stderr
    [missing] = json.loads(run.stdout)["missing"]
    assert "4096 threads" in missing["cell"]
    reason = "unavailable: 4096 threads need 4096 processors, and there are "
    assert missing["reason"].startswith(reason)
    assert json.loads(run_inline(*words).stdout)["missing"] == [missing]
    records = [*(tmp_path / "results" / "records").rglob("*.json")]
    assert len(records) == 3, "the reason is stored once"
    run_inline(*"results export theirs.tar".split())
    shutil.rmtree(tmp_path / "results")
    run_inline("study", "report", file, "--with", "theirs.tar", "--output", "mine.md")
    page = (tmp_path / "mine.md").read_text()
    assert "## Cells without a result" in page and "4096 threads need 4096" in page


def test_the_command_in_a_report_file_names_no_folder(run_inline, study_name, results, tmp_path):
    outcome = run_inline(*f"study report {study_name} --results ./results/ -o mine.md".split())
    assert outcome.returncode == 0, outcome.stderr
    words = read_repeat_command((tmp_path / "mine.md").read_text())
    assert words == ["study", "run", "mine", "--size", "smoke"]


def test_a_report_without_records_names_the_command_that_measures(
    run_inline, study_folder, results, tmp_path
):
    shutil.copy(study_folder / "mine.toml", tmp_path / "mine.toml")
    results.rename(tmp_path / "others")
    for file in tmp_path.glob("others/records/*/*.json"):
        file.unlink()
    outcome = run_inline(*"study report ./mine.toml --results others".split())
    assert outcome.returncode == 2
    assert f"`xfbench study run ./mine.toml --results {tmp_path}/others`" in outcome.stderr


def test_a_report_in_html_has_plot_and_published_figures(run_inline, study_name, results, tmp_path):
    outcome = run_inline(*f"study report {study_name} --output mine.html".split())
    assert outcome.returncode == 0, outcome.stderr
    html = (tmp_path / "mine.html").read_text()
    assert html.count("<svg") == 1
    assert "published (Doe20, least)" in html and "published (Doe20, most)" in html
    for words in (
        *("Does a batch of mine matter?", "It is tried.", "1.5–2.5 times", "Doe20, table 3"),
        *("Nothing else is.", "a smoke test", "xfbench study run mine --size smoke"),
    ):
        assert words in html, words


def test_a_report_in_markdown_has_its_plots_beside_it(run_inline, study_name, results, tmp_path):
    outcome = run_inline(*f"study report {study_name} --output mine.md".split())
    assert outcome.returncode == 0
    assert "](mine-1.svg)" in (tmp_path / "mine.md").read_text()
    assert (tmp_path / "mine-1.svg").read_text().startswith("<svg xmlns")


def test_a_dry_run_without_results_cannot_estimate_the_time(run_inline, study_name):
    outcome = run_inline(*f"study run {study_name} --dry-run".split())
    assert outcome.returncode == 0, outcome.stderr
    first, *cells = outcome.stdout.splitlines()
    assert first == "3 cells, at most 6 launches; time: unknown"
    assert sum("unsupported" in cell or "one-channel" in cell for cell in cells) == 1


def test_a_dry_run_says_what_is_verified_first(run_inline, study_name, monkeypatch, tmp_path):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    words = f"study run {study_name} --dry-run".split()
    text = " ".join(run_inline(*words).stdout.split())
    sentence = "1 configuration and 2 timed batch sizes are not proven equal yet: verification"
    assert sentence in text
    document = json.loads(run_inline(*words, "--json").stdout)
    assert document["unproven"] == {"configurations": 1, "batches": 2}
    unverified = json.loads(run_inline(*words, "--json", "--no-verify").stdout)
    assert unverified["unproven"] == {"configurations": 0, "batches": 0}
    run_words = "run -f reference -w lenet --batch-size 2 --steps 2 --launches 1 --dry-run".split()
    assert "1 configuration and 1 timed batch size are not proven" in run_inline(*run_words).stderr
    assert "proven" not in run_inline(*run_words, "--no-verify").stderr


def test_a_dry_run_estimates_the_time_from_earlier_launches(run_inline, study_name, results):
    plan = json.loads(run_inline(*f"study run {study_name} --dry-run --json".split()).stdout)
    assert plan["launches"] == 6 and len(plan["cells"]) == 3
    assert plan["estimate"]["unknown"] == 0 and plan["estimate"]["seconds"] > 0


def test_a_dry_run_resumes_what_is_missing(run_inline, study_name, results):
    [file] = [
        file
        for file in results.glob("records/*/*.json")
        if (record := json.loads(file.read_text()))["request"]["global_batch_size"] == 2
        and record["request"]["launch"] == 1
    ]
    file.unlink()
    remaining = json.loads(
        run_inline(*f"study run {study_name} --dry-run --resume --json".split()).stdout
    )
    unsupported = 2
    assert remaining["launches"] == 1 + unsupported


def test_report_includes_imported_records(run_inline, study_name, results):
    run_inline(*"results export theirs.tar".split())
    line = f"study report {study_name} --results nowhere --with theirs.tar --json"
    outcome = run_inline(*line.split())
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout)["launches"] == 4


NO_SLURM = "echo 'squeue: error: DNS lookup failed\nsqueue: fatal: no configuration' >&2\nexit 1"
UNREACHABLE = "Slurm cannot be reached from here: no configuration"


def write_study_with_slurm(file, local_size):
    """Write the study with a local size, and with the size paper, which needs Slurm."""
    head, matrix, rest = STUDY.split("[[matrix]]")
    analysis = rest[rest.index("[[analysis]]") :]
    local = f"[[matrix]]{matrix}".replace("smoke", local_size)
    paper = f'[[matrix]]{matrix}launcher = "slurm"\n'.replace("smoke", "paper")
    file.write_text(head + local + paper + analysis)


@pytest.mark.parametrize("local_size", ["smoke", "laptop"])
def test_a_run_says_that_slurm_cannot_be_reached(install, run_inline, tmp_path, local_size):
    install("squeue", NO_SLURM)
    file = tmp_path / "mine.toml"
    write_study_with_slurm(file, local_size)
    words = f"study run {file} --size paper --no-verify".split()
    dry_run = run_inline(*words, "--dry-run")
    assert dry_run.returncode == 0, dry_run.stderr
    first, count, *cells = dry_run.stdout.splitlines()
    assert first == UNREACHABLE and count.startswith("2 cells") and len(cells) == 2
    document = json.loads(run_inline(*words, "--dry-run", "--json").stdout)
    assert document["slurm_obstacle"] == UNREACHABLE and len(document["cells"]) == 2
    run = run_inline(*words, "--json")
    assert run.returncode == 1
    *_, last = run.stderr.splitlines()
    assert last == (
        f"xfbench: 2 cells of mine not launched: {UNREACHABLE}. Run the command on a login node of "
        f"the cluster, or choose --size {local_size}"
    )
    assert "no launches left" not in run.stderr
    answer = json.loads(run.stdout)
    assert {each["reason"] for each in answer["missing"]} == {f"unavailable: {UNREACHABLE}"}


def test_a_dry_run_without_slurm_says_nothing_of_slurm(study_name, install, run_inline):
    install("squeue", NO_SLURM)
    document = json.loads(run_inline(*f"study run {study_name} --dry-run --json".split()).stdout)
    assert document["slurm_obstacle"] is None


PROBES = """
name = "mine"
title = "Probes of mine"
question = "What does the reference take?"
sources = ["Doe20"]

[[matrix]]
framework = ["reference"]
workload = ["lenet"]
data = "synthetic"
probe = ["process", "huge_pages"]
batch_size = [4]
threads = [1]
steps = 3
launches = 1

[[analysis]]
name = "support"

[[analysis.claim]]
source = "Doe20"
text = "It goes on after a signal"
where = { feature = "signal" }
low = 1.0
"""


@pytest.fixture
def probes(tmp_path, monkeypatch):
    """A function that writes a study of probes of a framework and returns its name."""

    def write(framework):
        folder = tmp_path / "own"
        folder.mkdir()
        text = PROBES.replace("reference", framework)
        (folder / "mine.toml").write_text(text)
        monkeypatch.setenv("XFBENCH_STUDIES", str(folder))
        return "mine"

    return write


@pytest.mark.deep
def test_a_study_of_probes_is_run_resumed_and_exported(run_process, run_inline, probes, tmp_path):
    name = probes("reference")
    run = run_process(*f"study run {name} --json".split())
    assert run.returncode == 0, run.stderr
    [finding] = json.loads(run.stdout)["findings"]
    assert ["checkpoint on SIGTERM, then resume", "yes"] in finding["table"]
    assert [claim["verdict"] for claim in finding["judged"]] == ["holds"]
    run_inline(*"results export theirs.tar".split())
    resumed = run_process(*f"study run {name} --resume --json".split())
    assert json.loads(resumed.stdout)["findings"] == [finding]
    records = [json.loads(file.read_text()) for file in tmp_path.glob("results/records/*/*.json")]
    assert [record["request"]["probe"] for record in records if record["status"] == "ok"] == [
        "process"
    ]
    outcome = run_inline(*f"study report {name} --with theirs.tar --results nowhere --json".split())
    assert json.loads(outcome.stdout)["findings"] == [finding], outcome.stderr
    validation = run_inline("results", "validate", "results")
    assert validation.returncode == 0, validation.stdout
    assert json.loads(run_inline("leaderboard", "--json").stdout)["tables"] == []


@pytest.mark.deep
def test_crashed_probe_is_a_finding_not_a_failure(run_process, probes, fake_adapter):
    fake_adapter("os._exit(7)")
    run = run_process(*f"study run {probes('odd')} --json".split())
    assert run.returncode == 0, run.stderr
    [finding] = json.loads(run.stdout)["findings"]
    assert ["checkpoint on SIGTERM, then resume", "no"] in finding["table"]
    assert [claim["verdict"] for claim in finding["judged"]] == ["does not hold"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("show thread-swep", "did you mean thread-sweep"),
        ("run nowhere.toml", "unknown experiment"),
        ("run thread-sweep --size smok", "did you mean smoke"),
        ("run thread-sweep --framework reference", "does not use reference"),
        ("run storage --medium nvme", "NAME=DIR"),
        ("run storage --medium nvme=nowhere", "no such folder"),
        ("run thread-sweep --launches 1,2", "one number"),
        ("run hpc-support --framework reference", "does not use reference"),
        ("report thread-sweep", "has no results"),
        ("report thread-sweep --output t.pdf", "FILE.html or FILE.md"),
    ],
)
def test_invalid_study_arguments_give_one_line_and_exit_2(run_inline, arguments, words):
    outcome = run_inline("study", *arguments.split())
    assert outcome.returncode == 2
    assert len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr
    assert words in outcome.stderr


@pytest.mark.parametrize("command", ["show", "run"])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"reference"', '"refrence"', "unknown framework 'refrence': did you mean reference?"),
        ('"lenet"', '"lenett"', "unknown workload 'lenett': did you mean lenet?"),
        ("warmup = 1", 'kernel = "numpi"', "unknown kernel 'numpi': did you mean numpy?"),
        ("warmup = 1", 'precision = "float23"', "unknown precision 'float23': did you mean"),
        ('name = "ratio"', 'name = "ration"', "unknown analysis 'ration': did you mean ratio?"),
        ('over = "batch_size"', 'over = "batchsize"', "did you mean batch_size?"),
        (
            'over = "batch_size"',
            'over = "framework"\nagainst = "torch"',
            "unknown baseline 'torch': choose from best, least, previous, reference",
        ),
    ],
)
def test_unknown_names_in_a_study_file_give_one_line_and_exit_2(
    run_inline, tmp_path, command, old, new, words
):
    assert old in STUDY
    (tmp_path / "mine.toml").write_text(STUDY.replace(old, new))
    outcome = run_inline("study", command, "mine.toml")
    assert outcome.returncode == 2
    assert len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr
    assert words in outcome.stderr


def interrupt_and_resume(study_folder, folder, signal_number, delay):
    """Run the study, signal it `delay` seconds after its first launch, and resume it."""
    with subprocess.Popen(
        study_command(folder),
        env={**os.environ, "XFBENCH_STUDIES": str(study_folder)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        for line in process.stderr:
            if line.startswith("1/"):
                break
        time.sleep(delay)
        process.send_signal(signal_number)
        process.communicate(timeout=60)
    resumed = run_study(study_folder, folder, "--resume")
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.deep
def test_resumed_study_has_the_same_records(study_folder, measured_study, tmp_path):
    interrupt_and_resume(study_folder, tmp_path / "resumed", signal.SIGKILL, delay=0.5)
    # Unsupported cells may be recorded twice.
    resumed = sorted(set(requests_and_statuses(tmp_path / "resumed")))
    assert resumed == requests_and_statuses(measured_study[1])


@pytest.mark.long
@pytest.mark.parametrize("trial", range(10))
def test_a_study_resumes_wherever_it_was_interrupted(study_folder, measured_study, tmp_path, trial):
    generator = random.Random(trial)
    signal_number = generator.choice([signal.SIGINT, signal.SIGKILL])
    interrupt_and_resume(
        study_folder, tmp_path / "resumed", signal_number, delay=generator.uniform(0, 4)
    )
    resumed = sorted(set(requests_and_statuses(tmp_path / "resumed")))
    assert resumed == requests_and_statuses(measured_study[1])
