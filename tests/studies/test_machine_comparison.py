"""Tests of studies that compare machines, by `xfbench study report`.

The machines are made up. The last tests have the launches that were recorded on an H100.
"""

import functools
import json
from pathlib import Path

import pytest

from tests.sample_records import SOFTWARE, certify_records, vary_record
from xfbench import bundle
from xfbench.base import digests
from xfbench.host.machine import describe_machine
from xfbench.model.record import Epoch
from xfbench.planning import experiment
from xfbench.store.results_folder import Store

H100_RECORDINGS = Path(__file__).parents[1] / "model" / "h100"
PROCESSORS = {
    "KNL": ("Intel(R) Xeon Phi(TM) CPU 7250 @ 1.40GHz", "mic_knl", ()),
    "Skylake": ("Intel(R) Xeon(R) Platinum 8160", "skylake_avx512", ()),
}
PROCESSORS |= {
    gpu: ("Intel(R) Xeon(R) CPU E5-2680 v2", "ivybridge", (model,))
    for gpu, model in (("K40", "Tesla K40m"), ("P100", "Tesla P100-PCIE-16GB"))
}
SESSIONS = ("first", "second", "third")


def build_machine(name):
    model, microarchitecture, accelerators = PROCESSORS[name]
    changes = {"cpu_model": model, "microarchitecture": microarchitecture, "cores": 68}
    return describe_machine().model_copy(update={**changes, "accelerators": accelerators})


@functools.cache
def list_cells(study):
    """Return the cells of the study at size paper that train on synthetic data."""
    matrices = experiment.load(study).matrices_of_size("paper")
    synthetic = [matrix for matrix in matrices if list(matrix.data) == ["synthetic"]]
    return [cell for cell, _ in experiment.expand_matrices(synthetic)]


@pytest.fixture
def make_launches(record):
    """Return a function that makes launches of a study's cell on a machine, two in each session."""

    def make(
        machine,
        seconds,
        *,
        study="architectures",
        framework="torch",
        workload="caffenet",
        nodes=1,
        sessions=SESSIONS,
        fields=None,
        threads=None,
    ):
        expected = (framework, workload, "cuda" if PROCESSORS[machine][2] else "cpu", nodes)
        [cell] = [
            cell
            for cell in list_cells(study)
            if (cell.framework, cell.workload, cell.device, cell.nodes) == expected
        ]
        launches = []
        for number, session in enumerate(sessions):
            for launch in (1, 2):
                changes = {"session": session, "threads": threads or cell.threads}
                request = cell.request(launch).model_copy(update=changes)
                step_seconds = seconds * (1 + 0.002 * number + 0.001 * launch)
                record_fields = {
                    "machine": build_machine(machine),
                    "software": SOFTWARE,
                    "request": request,
                    "cell": digests.of_json(request.cell_digest_fields()),
                    **(fields or {}),
                }
                made = record(steps=(step_seconds,) * 3, workload=workload, fields=record_fields)
                launches.append(made)
        return launches

    return make


@pytest.fixture
def report(tmp_path, run_inline):
    """Return a function that reports a study from records with certificates."""

    def run_report(records, *options, study="architectures", size="paper", uncertified=()):
        store = Store(tmp_path / "results")
        store.create_and_check_folders()
        certified, certificates = certify_records(records)
        for certificate in certificates.values():
            certificate.write(store.certificate_path(certificate.id))
        for each in (*certified, *uncertified):
            store.add(each)
        words = ["study", "report", study, "--size", size, "--results", store.folder]
        return run_inline(*words, *options)

    return run_report


@pytest.fixture
def answer(report):
    """Return a function that returns the JSON document of a report."""

    def run_report(*arguments, **options):
        process = report(*arguments, "--json", **options)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run_report


def find_verdict(document, sentence):
    [judged] = [each for each in document["sentences"] if each["sentence"] == sentence]
    return judged["verdict"]


FASTER_THAN_K40 = "With Caffe, one KNL was about 2 times as fast as one K40."
SLOWER_THAN_P100 = "With Caffe, one KNL was about 40 to 80 % slower than one P100."
TWO_EQUAL_P100 = "2 KNL were about as fast as one P100 with CaffeNet, AlexNet and GoogLeNet."


@pytest.mark.parametrize(
    ("gpu", "sentence", "knl_seconds", "verdict"),
    [
        ("K40", FASTER_THAN_K40, 0.5, "holds"),
        ("K40", FASTER_THAN_K40, 1.5, "does not hold"),
        ("K40", FASTER_THAN_K40, 0.3, "does not hold"),
        ("K40", FASTER_THAN_K40, 1 / 1.6, "cannot be told"),
        ("P100", SLOWER_THAN_P100, 1.6, "holds"),
        ("P100", SLOWER_THAN_P100, 1.1, "does not hold"),
        ("P100", SLOWER_THAN_P100, 2.5, "does not hold"),
        ("P100", SLOWER_THAN_P100, 1.8, "cannot be told"),
    ],
)
def test_claim_about_two_machines_gets_a_verdict(
    make_launches, answer, gpu, sentence, knl_seconds, verdict
):
    document = answer([*make_launches("KNL", knl_seconds), *make_launches(gpu, 1.0)])
    assert find_verdict(document, sentence) == verdict


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [(1.0, "holds"), (1.5, "does not hold"), (0.7, "does not hold"), (1.25, "cannot be told")],
)
def test_two_nodes_are_compared_with_one_node_of_another_machine(
    make_launches, answer, seconds, verdict
):
    records = []
    for workload in ("caffenet", "alexnet", "googlenet"):
        records += make_launches("KNL", 1.9, workload=workload)
        records += make_launches("P100", 1.0, workload=workload)
        records += make_launches("KNL", seconds, workload=workload, nodes=2)
    assert find_verdict(answer(records), TWO_EQUAL_P100) == verdict


@pytest.mark.parametrize("nodes", [1, 2])
def test_claim_about_two_nodes_needs_launches_of_each_network_on_two_nodes(
    make_launches, answer, nodes
):
    """Here, only CaffeNet was launched."""
    document = answer([*make_launches("KNL", 1.0, nodes=nodes), *make_launches("P100", 1.0)])
    assert find_verdict(document, TWO_EQUAL_P100) == "cannot be told"


SLOWDOWNS = {
    ("mxnet", "K40"): ("1.2 to 3.7", 2.0, 1.0, 3.7),
    ("mxnet", "P100"): ("5.3 to 14.1", 9.0, 3.0, 14.1),
    ("tensorflow", "K40"): ("5.0 to 22.3", 9.0, 30.0, 5.0),
    ("tensorflow", "P100"): ("18.9 to 59.0", 30.0, 80.0, 59.0),
}


@pytest.mark.parametrize(("framework", "gpu"), SLOWDOWNS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_claim_about_a_slowdown_by_framework_gets_a_verdict(
    make_launches, answer, framework, gpu, number
):
    make = functools.partial(make_launches, study="slowdown", framework=framework)
    printed, seconds = SLOWDOWNS[framework, gpu][0], SLOWDOWNS[framework, gpu][number]
    document = answer([*make("KNL", seconds), *make(gpu, 1.0)], study="slowdown")
    [judged] = [each for each in document["sentences"] if each["verdict"] != "cannot be told"] or [
        None
    ]
    name = {"mxnet": "MXNet", "tensorflow": "TensorFlow"}[framework]
    sentence = f"{name} on KNL was {printed} times as slow as on a {gpu}."
    assert (
        find_verdict(document, sentence) == ["holds", "does not hold", "cannot be told"][number - 1]
    )
    assert judged is None or judged["sentence"] == sentence


def test_slowdown_has_a_range_over_networks_beside_the_published_one(make_launches, answer):
    make = functools.partial(make_launches, study="slowdown", framework="mxnet")
    records = []
    for workload, seconds in (("caffenet", 2.0), ("alexnet", 3.0), ("googlenet", 2.5)):
        records += make("KNL", seconds, workload=workload)
        records += make("P100", 1.0, workload=workload)
    document = answer(records, study="slowdown")
    [note] = document["findings"][0]["notes"]
    assert note.startswith("mxnet, 68 cores Intel(R) Xeon Phi") and note.endswith(
        ": 2 (caffenet · mxnet · batch 256) to 3 (alexnet · mxnet · batch 256) times"
    )
    assert document["findings"][0]["beside"] == "slowdown"
    assert len(document["published"]) == 4


def test_few_sessions_of_a_machine_give_no_interval(make_launches, answer):
    knl = make_launches("KNL", 0.5)
    document = answer([*knl, *make_launches("K40", 1.0, sessions=SESSIONS[:2])])
    assert find_verdict(document, FASTER_THAN_K40) == "cannot be told"
    ratios = document["findings"][1]
    assert [value["interval"]["low"] for value in ratios["values"]] == [None]
    assert "1 of 1 ratio without an interval" in ratios["notes"][-1]
    assert "too few launches or sessions" in document["sentences"][0]["why"]


def test_launches_of_two_machines_are_not_paired_in_a_session_of_the_same_name(
    make_launches, answer
):
    document = answer([*make_launches("KNL", 0.5), *make_launches("K40", 1.0)])
    [value] = document["findings"][1]["values"]
    # Sessions differ alike on both machines, so pairs would have no noise.
    assert value["interval"]["high"] / value["interval"]["low"] > 1.005


@pytest.mark.parametrize("machine", ["K40", "Skylake"])
def test_a_machine_without_certificate_is_not_compared(make_launches, answer, machine):
    """Also not if the other machine has one, and both have the same code on CPUs."""
    unverified = make_launches(machine, 1.0)
    document = answer(make_launches("KNL", 0.5), uncertified=unverified)
    assert find_verdict(document, FASTER_THAN_K40) == "cannot be told"
    assert [value["interval"] for value in document["findings"][1]["values"]] == [None]
    assert "certificate" in document["findings"][1]["values"][0]["reason"]


def test_the_best_number_of_threads_of_a_machine_counts(make_launches, answer):
    slow = make_launches("KNL", 1.5, threads=32)
    records = [*slow, *make_launches("KNL", 0.5, threads=64), *make_launches("K40", 1.0)]
    document = answer(records)
    assert find_verdict(document, FASTER_THAN_K40) == "holds"
    assert len(document["findings"][0]["values"]) == 3
    [value] = document["findings"][1]["values"]
    assert value["at"].endswith("K40m") and value["interval"]["value"] == pytest.approx(2)


def make_three_machines(make_launches):
    records = make_launches("KNL", 0.5)
    return [*records, *make_launches("K40", 1.0), *make_launches("P100", 0.3)]


def test_the_fastest_machine_is_the_baseline(make_launches, answer):
    values = answer(make_three_machines(make_launches))["findings"][1]["values"]
    ratios = {value["at"].split()[-1]: value["interval"]["value"] for value in values}
    assert ratios == {
        "K40m": pytest.approx(1.0 / 0.3),
        "(mic_knl)": pytest.approx(0.5 / 0.3),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k40", {"(mic_knl)": 0.5, "P100-PCIE-16GB": 0.3}),
        ("Xeon Phi 7250", {"K40m": 2.0, "P100-PCIE-16GB": 0.6}),
        ("xeon", {"K40m": 2.0, "P100-PCIE-16GB": 0.6}),  # not the Xeons beside the GPUs
    ],
)
def test_against_chooses_the_baseline(make_launches, answer, text, expected):
    document = answer(make_three_machines(make_launches), "--against", text)
    for finding in (document["findings"][1], document["findings"][2]):
        ratios = {
            (value["name"] + value["at"]).removesuffix("1 node").split()[-1]: value["interval"][
                "value"
            ]
            for value in finding["values"]
        }
        assert ratios == {name: pytest.approx(value) for name, value in expected.items()}
    # The claims have their own machines.
    assert find_verdict(document, FASTER_THAN_K40) == "holds"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("H100", "is no part of a machine here: 68 cores Intel"),
        ("Tesla", "is a part of several machines: 68 cores Intel"),
    ],
)
def test_unknown_and_ambiguous_machines_are_refused(make_launches, report, text, message):
    process = report(make_three_machines(make_launches), "--against", text)
    assert process.returncode == 2
    assert f"--against {text}: {message}" in process.stderr
    assert "Tesla K40m; " in process.stderr and "Tesla P100-PCIE-16GB" in process.stderr


def test_against_is_refused_if_the_study_compares_no_machines(make_launches, report):
    process = report(make_launches("KNL", 1.0), "--against", "KNL", study="kernels", size="paper")
    assert process.returncode == 2
    assert "the study kernels compares no machines" in process.stderr


@pytest.mark.parametrize(
    ("two_nodes", "number", "uncertainty"),
    [
        (0.9, "2", "2"),
        (1.0, "2", "between 2 and more than 2"),
        (1.3, "more than 2", "more than 2"),
    ],
)
def test_nodes_that_equal_a_node_are_counted(make_launches, answer, two_nodes, number, uncertainty):
    records = [*make_launches("KNL", 1.7), *make_launches("P100", 1.0)]
    records += make_launches("KNL", two_nodes - 0.001, nodes=2)
    finding = answer(records)["findings"][2]
    [header, row] = finding["table"]
    assert row[header.index("nodes") : header.index("nodes") + 2] == [number, uncertainty]
    assert f"P100-PCIE-16GB (caffenet · torch): {number}." in finding["sentence"]


def test_nodes_follow_from_one_node_if_scaling_is_perfect(make_launches, answer):
    finding = answer([*make_launches("KNL", 1.7), *make_launches("P100", 1.0)])["findings"][2]
    [_, row] = finding["table"]
    assert "about 1.7, if scaling were perfect" in row
    assert any(text.startswith("between 1.6") for text in row)


def test_time_to_solution_says_whether_it_was_measured(make_launches, answer):
    epochs = tuple(
        Epoch(epoch=n, seconds=40.0, train_loss=1.0, test_loss=1.0, test_accuracy=0.5)
        for n in (1, 2)
    )
    computed = make_launches("KNL", 0.5)
    measured = make_launches("P100", 0.2, fields={"learning": epochs})
    values = answer([*computed, *measured])["findings"][0]["values"]
    values.sort(key=lambda value: value["note"])
    batch = computed[0].request.global_batch_size
    assert [(value["interval"]["value"], value["note"]) for value in values] == [
        (
            pytest.approx(1_281_167 / batch * 0.5, rel=0.01),
            "computed from images/s: 1,281,167 images per epoch",
        ),
        (40.0, "measured: 2 whole epochs"),
    ]


STUDY = """
name = "mine"
title = "Machines"
question = "Which machine?"
[[matrix]]
framework = ["jax"]
workload = ["lenet", "convnet"]
device = ["cpu", "cuda"]
data = "synthetic"
steps = 200
[[analysis]]
name = "ANALYSIS"
over = "machine"
of = "time_to_solution"
epochs = 2
against = "best"
[[analysis.claim]]
source = "X"
text = "An H100 is at least twice as fast"
where = { machine = "EPYC" }
against = "H100"
low = 2.0
"""


def write_study(folder, old="", new="", analysis="ratio"):
    file = folder / "mine.toml"
    file.write_text(STUDY.replace("ANALYSIS", analysis).replace(old, new))
    return file


@pytest.fixture
def recorded(tmp_path):
    """The launches of JAX on an H100, and CPU launches that are a tenth as fast."""
    store = Store(tmp_path / "recorded")
    records = bundle.import_carried_run(H100_RECORDINGS, store, lambda line: None)
    on_gpu = [record for record in records if record.request.framework == "jax"]
    machine = describe_machine().model_copy(
        update={"cpu_model": "AMD EPYC 7763", "accelerators": ()}
    )
    on_cpu = [
        vary_record(
            record,
            request={"device": "cpu", "window": 1},
            seconds=10 * min(record.measurement.step_seconds),
            machine=machine,
            observed=None,
        )
        for record in on_gpu
    ]
    return [*on_gpu, *on_cpu]


def test_recorded_launches_of_a_gpu_are_compared_with_a_cpu(recorded, tmp_path, report):
    file = write_study(tmp_path)
    process = report(recorded, study=file, size="laptop")
    assert process.returncode == 0, process.stderr
    text = " ".join(process.stdout.split())
    assert "NVIDIA H100 80GB HBM3" in text and "AMD EPYC 7763" in text
    assert "computed from images/s: 50,000 images per epoch" in text
    assert "cannot be told" in text and "too few launches or sessions" in text


@pytest.mark.parametrize(
    ("old", "new", "analysis", "message"),
    [
        ('over = "machine"', 'over = "device"', "ratio", 'against = "H100" needs an analysis'),
        ('over = "machine"', 'over = "device"', "nodes_equal", "nodes_equal compares machines"),
        ("epochs = 2", "epochs = 0", "ratio", "epochs"),
    ],
)
def test_wrong_keys_of_machine_comparisons_are_refused(
    tmp_path, run_inline, old, new, analysis, message
):
    process = run_inline("study", "show", write_study(tmp_path, old, new, analysis))
    assert process.returncode == 2
    assert message in process.stderr
