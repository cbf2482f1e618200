"""What nobody else is to know: tokens are kept nowhere, hosts and users are in no record."""

import getpass
import json
import platform

import pytest

from xfbench.base import private_names
from xfbench.exchange.submission import find_private_name
from xfbench.execution import starting
from xfbench.execution.launch import LaunchContext
from xfbench.session import run_requests
from xfbench.store.results_folder import Store

TOKENS = {
    name: f"hunter2-{number}"
    for number, name in enumerate(
        [
            *("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "PGPASSWORD"),
            *("SLURM_JWT", "PMIX_SECRET", "SSH_AUTH_SOCK", "KRB5CCNAME", "XFBENCH_TOKEN"),
            *("HTTPS_PROXY", "PIP_INDEX_URL", "MPICH_API_KEY", "OMP_NUM_THREADS"),
        ]
    )
}
SAYS = """
import platform, sys
print(sorted(os.environ.items()), file=sys.stderr)
raise RuntimeError(f"{platform.node()} has no /home/alice/data for alice@example.org")
"""


@pytest.fixture
def told(monkeypatch):
    """Tokens in the environment, as their owners have them."""
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("more", [[], ["--ranks=2", "--strategy=side by side", "--scaling=weak"]])
def test_tokens_appear_in_no_file_or_output(odd, xfbench, tmp_path, told, more):
    shown = [xfbench(*odd("import sys\nprint(dict(os.environ), file=sys.stderr)"), *more)]
    shown += [xfbench("leaderboard", "--format", one) for one in ("text", "html", "json")]
    shown += [xfbench("report", "--output", "report.html")]
    shown += [xfbench("results", "export", name) for name in ("all.tar", "rows.csv")]
    shown += [xfbench("results", "submit", "submission")]
    assert shown[0].returncode == 0, shown[0].stderr
    for one in shown:
        assert "hunter2" not in one.stdout + one.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"stderr", "command.json", "command.sh", "report.html"} <= {one.name for one in files}
    assert [one for one in files if b"hunter2" in one.read_bytes()] == []


def test_launcher_environment_contains_no_token(told, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    given = starting.inherited_variables(
        {**TOKENS, "SLURM_JOB_ID": "7", "PATH": "/bin", "FI_PROVIDER": "x"}
    )
    assert given == {"SLURM_JOB_ID": "7", "PATH": "/bin", "FI_PROVIDER": "x"}


def test_job_script_contains_no_token(odd, xfbench, told, tmp_path, monkeypatch):
    shown = xfbench(*odd(), "--launcher=slurm", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH" in shown.stdout and "hunter2" not in shown.stdout


def test_record_names_no_host_or_user(odd, xfbench, tmp_path):
    assert xfbench(*odd(SAYS)).returncode == 1
    [record] = Store(tmp_path / "results").records()
    assert record.status == "failed"
    assert record.reason.endswith("has no …/data for …"), record.reason
    names = {private_names.host_hash(platform.node())}
    assert record.machine.hostname_hash in names
    assert find_private_name(record.document(), names) is None
    text = json.dumps(record.document())
    assert str(tmp_path) not in text
    assert getpass.getuser() == "root" or getpass.getuser() not in text  # a word of others, too


def test_index_password_is_not_recorded(fake_adapter, cell, tmp_path, monkeypatch, capsys):
    """Of somebody else's mirror, as pip has it in its settings."""
    lock = f"nowhere==1 --hash=sha256:{'0' * 64}\n"
    managed = {"kind": "managed", "python": "3.11"}
    fake_adapter(environment=managed, files={"requirements.lock": lock})
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://alice:hunter2!%40@localhost:1/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    session = LaunchContext(Store(tmp_path / "results"))
    session.prepare(["odd"], {}, print)
    [record] = run_requests([cell(framework="odd", kernel="plain").request(1)], session)
    assert record.status == "unavailable"
    assert "hunter2" not in json.dumps(record.document()) + capsys.readouterr().out
    assert not list((tmp_path / "home" / "environments").glob("odd-*/"))


def test_url_credentials_are_hidden():
    hidden = private_names.make_redactor(())(
        "see https://alice:hun!ter2%40@index.example.org/simple, user@host"
    )
    assert hidden == "see https://…@index.example.org/simple, user@host"
