"""Tokens are stored nowhere, and records name no host or user."""

import getpass
import json
import platform

import pytest

from xfbench.base import foreign_names, name_hashes, process_variables
from xfbench.exchange.submission import describe_private_name_in_json
from xfbench.execution.launch import LaunchContext
from xfbench.session import Session
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
FAIL_WITH_PRIVATE_NAMES = """
import platform, sys
print(sorted(os.environ.items()), file=sys.stderr)
raise RuntimeError(f"{platform.node()} has no /home/alice/data for alice@example.org")
"""


@pytest.fixture
def tokens(monkeypatch):
    """Set tokens in the environment."""
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "options", [[], ["--ranks=2", "--strategy=side by side", "--scaling=weak"]]
)
def test_tokens_appear_in_no_file_or_output(run_arguments, run_inline, tmp_path, tokens, options):
    outputs = [
        run_inline(*run_arguments("import sys\nprint(dict(os.environ), file=sys.stderr)"), *options)
    ]
    outputs += [
        run_inline("leaderboard", "--format", table_format)
        for table_format in ("text", "html", "json")
    ]
    outputs += [run_inline("report", "--output", "report.html")]
    outputs += [run_inline("results", "export", name) for name in ("all.tar", "rows.csv")]
    outputs += [run_inline("results", "submit", "submission")]
    assert not any(each.returncode for each in outputs), [each.stderr for each in outputs]
    for output in outputs:
        assert "hunter2" not in output.stdout + output.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"stderr", "command.json", "command.sh", "report.html"} <= {path.name for path in files}
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []


def test_launcher_environment_contains_no_token(tokens, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    inherited = process_variables.select_variables(
        process_variables.Purpose.START,
        {**TOKENS, "SLURM_JOB_ID": "7", "PATH": "/bin", "FI_PROVIDER": "x"},
    )
    assert inherited == {"SLURM_JOB_ID": "7", "PATH": "/bin", "FI_PROVIDER": "x"}


def test_job_script_contains_no_token(run_arguments, run_inline, tokens, tmp_path, monkeypatch):
    output = run_inline(*run_arguments(), "--launcher=slurm", "--dry-run")
    assert output.returncode == 0, output.stderr
    assert "#SBATCH" in output.stdout and "hunter2" not in output.stdout


def test_record_names_no_host_or_user(run_arguments, run_inline, tmp_path, monkeypatch):
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "quetzalcoatl")
    assert run_inline(*run_arguments(FAIL_WITH_PRIVATE_NAMES)).returncode == 1
    [record] = Store(tmp_path / "results").records()
    assert record.status == "failed"
    assert record.reason.endswith("has no …/data for …"), record.reason
    names = {name_hashes.host_hash(platform.node())}
    assert record.machine.hostname_hash in names
    assert describe_private_name_in_json(record.document(), names) is None
    text = json.dumps(record.document())
    assert str(tmp_path) not in text
    assert getpass.getuser() == "quetzalcoatl"
    assert "quetzalcoatl" not in text


def test_index_password_is_not_recorded(fake_adapter, cell, tmp_path, monkeypatch, capsys):
    """The package index in pip's settings has a user and password in its URL."""
    lock = f"nowhere==1 --hash=sha256:{'0' * 64}\n"
    managed = {"kind": "managed", "python": "3.11"}
    fake_adapter(environment=managed, files={"requirements.lock": lock})
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://alice:hunter2!%40@localhost:1/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    session = Session(LaunchContext(Store(tmp_path / "results")))
    session.prepare(["odd"])
    [record] = session.launch([cell(framework="odd", kernel="plain").request(1)])
    assert record.status == "unavailable"
    assert "hunter2" not in json.dumps(record.document()) + capsys.readouterr().out
    assert not list((tmp_path / "home" / "environments").glob("odd-*/"))


def test_url_credentials_are_hidden():
    hidden = foreign_names.make_private_text_redactor(())(
        "see https://alice:hun!ter2%40@index.example.org/simple, user@host"
    )
    assert hidden == "see https://…@index.example.org/simple, user@host"
