"""Bundles that return from an untrusted machine with arbitrary contents."""

import os
import shutil
import sys

import pytest

from tests import fake_framework
from tests.sample_bundles import build_plan, run_bundle
from xfbench import bundle
from xfbench.base.errors import UsageError
from xfbench.store.results_folder import Store


@pytest.fixture(scope="module")
def carried_folder(tmp_path_factory):
    """Yield the folder of a bundle that has run."""
    root = tmp_path_factory.mktemp("carried")
    fake_framework.write(root / "adapters" / "odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XFBENCH_ADAPTERS", str(root / "adapters"))
        bundle.write_carried_run(
            build_plan("odd", launches=1, batch_size=[4]), root / "away", print
        )
        run_bundle(root / "away", f"odd={sys.executable}")
        yield root / "away"


@pytest.fixture
def folder(carried_folder, tmp_path):
    shutil.copytree(carried_folder, tmp_path / "back")
    return tmp_path / "back"


def import_folder(folder):
    store = Store(folder.parent / "results")
    return list(bundle.import_carried_run(folder, store, print)), store


def test_links_and_pipes_in_a_bundle_are_not_imported(folder, tmp_path):
    (tmp_path / "secret").write_text("hunter2")
    launch_folder = folder / "launches" / "00001"
    (launch_folder / "notes").symlink_to(tmp_path / "secret")
    (launch_folder / "endless").symlink_to("/dev/zero")
    (launch_folder / "stderr").unlink()
    (launch_folder / "stderr").symlink_to(tmp_path / "secret")
    os.mkfifo(launch_folder / "pipe")
    [record], store = import_folder(folder)
    names = {path.name for path in store.run_folder(record).iterdir()}
    assert {"request.json", "reply.json", "stdout"} <= names
    assert not {"notes", "endless", "stderr", "pipe"} & names
    assert "hunter2" not in str(record.reason)
    second_import, _ = import_folder(folder)
    assert second_import == [record]


STRANGE = [b"", b"\xff", b"-", b"9" * 9, b"x" * 10**6, b"[" * 10**5, b"[]", b"{}", None]


@pytest.mark.parametrize(
    "name",
    [
        *("launches/00001/status", "launches/00001/failed", "launches/00001/request.json"),
        *("launches/00001/reply.json", "launches/00001/started"),
        *("inspect/odd/reply.json", "inspect/odd/status", "plan.json"),
    ],
)
def test_strange_bundle_file_gives_a_record_or_a_short_error(folder, name):
    for content in STRANGE:
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)
        try:
            records, _ = import_folder(folder)
        except UsageError as error:
            assert name == "plan.json" and len(str(error).splitlines()) == 1
            continue
        assert name != "plan.json"
        assert all(record.reason is None or len(record.reason) < 600 for record in records)
