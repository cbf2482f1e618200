"""Reading what Slurm says about a job."""

from xfbench.launchers import slurm


def test_the_first_of_two_fields_with_one_name_counts():
    listing = (
        "JobId=7 JobName=xfbench-0 JobState=PENDING Reason=Priority "
        "Comment=as JobState=FAILED Reason=NodeFail"
    )
    assert slurm.seen(listing) == slurm.Seen("PENDING", "Priority")


def test_a_job_without_a_reason_has_none():
    assert slurm.seen("JobId=7 JobState=RUNNING Reason=None") == slurm.Seen("RUNNING", "")
