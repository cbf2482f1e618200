"""Tests that options and numbers without sense are refused before anything is launched."""

import pytest

RUN = ("run", "--framework", "reference", "--workload", "lenet")


@pytest.mark.case("Unknown strategy")
@pytest.mark.parametrize("ranks", [(), ("--ranks", "2", "--scaling", "strong")])
def test_unknown_strategy_is_refused_with_any_number_of_ranks(run_inline, ranks):
    process = run_inline(*RUN, "--strategy", "dpp", *ranks)
    assert process.returncode == 2
    assert process.stderr == "xfbench: unknown strategy 'dpp': did you mean ddp?\n"


@pytest.mark.case("A million threads")
def test_a_million_threads_are_refused(run_inline):
    process = run_inline(*RUN, "--threads", "1000000")
    assert process.returncode == 2
    assert process.stderr == "xfbench: --threads 1,000,000: at most 65,536\n"


@pytest.mark.case("A number of steps beyond all limits")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--steps", "9" * 10), "--steps 9,999,999,999: at most 1,000,000,000"),
        (("--steps", "9" * 40), "at most 1,000,000,000"),
        (("--epochs", "9" * 30), "--epochs"),
        (("--epochs", "1", "--data", "digits", "--warmup", "9" * 30), "--warmup"),
        (("--min-time", "9" * 400), "is not a duration such as 90s"),
        (("--time-limit", "9" * 400), "is not a duration such as 90s"),
        (("--memory-limit", "9" * 400 + "GB"), "--memory-limit"),
        (("--launches", "0"), "--launches"),
        (("--launches", "9" * 20), "launches are too many"),
        (("--batch-size", "900000000"), "of memory"),
        (("--batch-size", "-1"), "less than 1"),
        (("--learning-rate", "nan"), "learning_rate"),
        (("--lars", "inf"), "lars"),
        (("--threads", "20000"), "20,000 threads are too many"),
    ],
)
def test_numbers_without_sense_exit_with_2(run_inline, arguments, words):
    process = run_inline(*RUN, *arguments)
    assert process.returncode == 2
    assert words in process.stderr and "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--strategy", "ddp"), "--strategy has no effect here: it needs --ranks 2 or more"),
        (("--strategy-options", "servers=1"), "servers"),
        (("--loader-threads", "0"), "--loader-threads has no effect here: it needs a prepared"),
        (("--loader", "native"), "needs a prepared data set"),
        (("--partition", "gpu"), "--partition has no effect here: it needs --launcher slurm"),
        (("--account", "a"), "--account has no effect here: it needs --launcher slurm"),
        (("--job-time", "90m"), "--job-time has no effect here: it needs --launcher slurm"),
        (("--no-wait",), "--no-wait has no effect here: it needs --launcher slurm"),
        (("--python", "torch=/bin/sh"), "the frameworks are reference"),
    ],
)
def test_options_without_effect_are_refused(run_inline, arguments, words):
    process = run_inline(*RUN, *arguments, "--dry-run")
    assert process.returncode == 2
    assert words in process.stderr


@pytest.mark.parametrize(
    "words",
    [
        (*RUN, "--results", "--dry-run"),
        (*RUN, "--data", "--steps=5"),
        ("study", "run", "quick", "--results", "--dry-run"),
    ],
)
def test_an_option_is_no_value_of_another_one(run_inline, words):
    process = run_inline(*words)
    assert process.returncode == 2
    assert process.stderr == f"xfbench: {words[-2]} needs a value, but {words[-1]} is an option\n"


def test_more_threads_than_cores_warn_before_the_start(run_inline):
    process = run_inline(*RUN, "--threads", "1000", "--dry-run")
    assert process.returncode == 0
    assert "warning: 1000 threads on" in process.stderr


TUNE = ("tune", "--framework", "reference", "--workload", "lenet")
VERIFY = ("verify", "--framework", "reference", "--workload", "lenet")
STUDY = ("study", "run", "quick", "--framework", "torch")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*TUNE, "--python", "torch=/bin/sh"), "the frameworks are reference"),
        ((*TUNE, "--over", "strategy=default"), "it needs --over ranks with 2 or more"),
        ((*TUNE, "--batch-size", "900000000"), "of memory"),
        ((*TUNE, "--launches", "9" * 20), "10000"),
        ((*TUNE, "--steps", "9" * 12), "--steps 999,999,999,999: at most"),
        ((*TUNE, "--show", "--budget", "9m"), "--budget has no effect here: leave out --show"),
        ((*TUNE, "--show", "--steps", "9"), "--steps has no effect here: leave out --show"),
        ((*VERIFY, "--python", "torch=/bin/sh"), "the frameworks are reference"),
        ((*VERIFY, "--strategy", "ddp"), "--strategy has no effect here: it needs --ranks 2"),
        ((*VERIFY, "--batch-size", "900000000"), "of memory"),
        ((*VERIFY, "--threads", "20000"), "20,000 threads are too many"),
        ((*VERIFY, "--seeds", "9" * 20), "1000"),
        ((*VERIFY, "--only", "pooling"), "--only has no effect here: it needs --self-test"),
        ((*VERIFY, "--self-test"), "--framework has no effect here: leave out --self-test"),
        (("verify", "--self-test", "--ranks", "2"), "--ranks has no effect here"),
        ((*STUDY, "--account", "a"), "--account has no effect here: it needs --launcher slurm"),
        ((*STUDY, "--job-time", "9h"), "--job-time has no effect here"),
        ((*STUDY, "--memory-limit", "9GB"), "--memory-limit has no effect here"),
        ((*STUDY, "--python", "caffe=/bin/sh"), "the frameworks are torch"),
        ((*STUDY, "--launches", "9" * 20), "launches are too many"),
        (
            (*STUDY, "--launcher", "slurm", "--site", "stampede2", "--partition", "nromal"),
            "unknown partition 'nromal': did you mean normal?",
        ),
        (
            (*RUN, "--launcher", "slurm", "--site", "stampede2", "--partition", "nromal"),
            "unknown partition 'nromal': did you mean normal?",
        ),
    ],
)
def test_other_commands_refuse_the_same(run_inline, arguments, words):
    process = run_inline(*arguments, "--dry-run")
    assert process.returncode == 2
    assert words in process.stderr and "Traceback" not in process.stderr
