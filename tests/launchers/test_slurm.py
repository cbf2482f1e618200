"""Tests of reading the output of Slurm commands, with stand-in programs."""

from functools import partial

import pytest

from xfbench.base.processes import CommandError
from xfbench.launchers import slurm
from xfbench.launchers.slurm import JobState

JOB = "JobId=7 JobName=xfbench-1 JobState=PENDING Reason=Priority Dependency=(null)"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A function that puts a program with these shell lines on the PATH."""

    def install(name, lines):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


@pytest.fixture
def scontrol(program):
    return partial(program, "scontrol")


def test_a_job_has_the_state_and_reason_that_scontrol_prints(scontrol):
    scontrol(f"""test "$*" = "-o show job 7" && echo '{JOB}'""")
    assert slurm.query_job_state("7") == JobState("PENDING", "Priority")


def test_a_job_in_several_lines_has_the_state_of_its_own_block(scontrol):
    blocks = [
        f"JobId={n} JobName=x\n   Priority=1\n   JobState={state} Reason=None"
        for n, state in ((6, "COMPLETED"), (7, "RUNNING"))
    ]
    scontrol("cat <<'END'\n" + "\n\n".join(blocks) + "\nEND")
    assert slurm.query_job_state("7") == JobState("RUNNING")


def test_a_job_that_slurm_has_forgotten_has_no_state(scontrol):
    scontrol("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert slurm.query_job_state("7") == JobState()


def test_a_slurm_that_does_not_answer_is_an_error(scontrol):
    scontrol("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(CommandError, match="Unable to contact"):
        slurm.query_job_state("7")


def test_the_first_of_two_fields_with_one_name_counts():
    listing = (
        "JobId=7 JobName=xfbench-0 JobState=PENDING Reason=Priority "
        "Comment=as JobState=FAILED Reason=NodeFail"
    )
    assert slurm.parse_job_state(listing) == JobState("PENDING", "Priority")


def test_a_job_without_a_reason_has_none():
    assert slurm.parse_job_state("JobId=7 JobState=RUNNING Reason=None") == JobState("RUNNING", "")


def test_a_submitted_job_has_its_number_without_the_cluster(program, tmp_path):
    program("sbatch", f"""test "$*" = "--parsable {tmp_path}/job.sh" && echo '7;cluster'""")
    assert slurm.submit_job_script(tmp_path / "job.sh") == "7"


def test_a_job_can_wait_for_the_end_of_another(program, tmp_path):
    words = f"--parsable --dependency=afterany:7 {tmp_path}/job.sh"
    program("sbatch", f"""test "$*" = "{words}" && echo 8""")
    assert slurm.submit_job_script(tmp_path / "job.sh", after="7") == "8"


@pytest.mark.parametrize(("listing", "number"), [("7\\n8", "7"), ("", None)])
def test_job_is_the_first_of_its_name_in_the_queue(program, listing, number):
    program("squeue", f"printf '{listing}'")
    assert slurm.find_job_number("xfbench-1") == number
