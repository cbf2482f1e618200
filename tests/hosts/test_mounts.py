"""Storage below folders whose names, or whose file systems, are not the usual ones."""

import json
import subprocess
import sys

import pytest

from tests import command_runner, temporary_mounts
from xfbench.host import media
from xfbench.worker import mounts

# White space of Python's `str.split` and `str.splitlines` that the kernel writes as it is.
NAMES = ["a\rb", "a\u00a0b", "\u2003em", "unit\x1fseparator", "next\x85line", "tab\tb"]


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    return command_runner.make_runner(monkeypatch, capsys, tmp_path)


def read_medium(run, folder):
    result = run("machine", "--read", folder, "--read-size", "8", "--json")
    assert result.returncode == 0, result.stderr
    return {k: v for k, v in json.loads(result.stdout)["medium"].items() if k != "free_bytes"}


@pytest.mark.case("White space that is not a separator")
def test_storage_below_a_name_with_white_space_is_known(run, tmp_path):
    media_by_name = {}
    for name in ("plain", *NAMES[:2]):
        with temporary_mounts.tmpfs(tmp_path, name=name) as folder:
            media_by_name[name] = read_medium(run, folder)
    plain = media_by_name.pop("plain")
    assert (plain["file_system"], plain["device"]) == ("tmpfs", "memory")
    assert all(medium == plain for medium in media_by_name.values())


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_overlay_below_a_name_with_white_space_lists_its_layers(tmp_path, name):
    with temporary_mounts.tmpfs(tmp_path, name=name) as memory:
        layers = [memory / f"{name}{layer}" for layer in ("lower", "upper", "work")]
        with temporary_mounts.overlay(tmp_path, *layers, name=f"all{name}") as folder:
            medium = media.describe_medium(folder)
    assert (medium.file_system, medium.device) == ("overlay", "overlay")
    assert [below.file_system for below in medium.below] == ["tmpfs"]


@pytest.mark.parametrize("name", ["a\rb", "\u00a0"], ids=ascii)
def test_image_below_a_name_with_white_space_is_found(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    with temporary_mounts.ext4(folder, name="image") as point:
        [below] = media.describe_medium(point).below
    assert below.file_system == media.describe_medium(tmp_path).file_system


# Mount a tmpfs at $1, write it as $2 in a copy of this process's mountinfo, and go on.
CLUSTER_MOUNT = """
mount -t tmpfs t "$1" && sed -E "s|^([0-9]+ .*) - tmpfs t rw|\\\\1 - $2|" /proc/$$/mountinfo > "$3"
mount --bind "$3" /proc/$$/mountinfo && shift 3 && exec "$@"
"""
PRINT_MEDIUM = """
import json, pathlib, sys
from xfbench.cli import main
from xfbench.worker import mounts
print(json.dumps(mounts.mount_of(pathlib.Path(sys.argv[1])).source))
sys.argv = ["xfbench", "machine", "--read", sys.argv[1], "--read-size", "8", "--json"]
main()
"""


@pytest.mark.deep
@pytest.mark.case("File systems of clusters")
@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ("lustre 10.1.1.1@o2ib:/my\\\\040work rw,flock", "10.1.1.1@o2ib:/my work"),
        ("gpfs fs\\\\1341 rw,relatime", "fs\\1"),
        ("beegfs beegfs_nodev rw,relatime,cfgFile=/etc/a", "beegfs_nodev"),
        ("fuse.ceph-fuse ceph-fuse rw,relatime,user_id=0", "ceph-fuse"),
    ],
)
def test_file_systems_of_clusters_are_network(tmp_path, fields, source):
    temporary_mounts.require_mounting("unshare", "sed")
    folder = tmp_path / "a folder\\1"
    folder.mkdir()
    arguments = [folder, fields, tmp_path / "mountinfo"]
    script = [sys.executable, "-c", PRINT_MEDIUM, folder]
    completed = subprocess.run(
        ["unshare", "-m", "sh", "-c", CLUSTER_MOUNT, "sh", *arguments, *script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    read_source, document = map(json.loads, completed.stdout.splitlines())
    facts = document["medium"]
    assert (facts["file_system"], facts["device"]) == (fields.partition(" ")[0], "network")
    assert read_source == source
    assert source not in facts["options"] and "cfgFile=/etc/a" not in facts["options"]


@pytest.mark.parametrize(
    "line", ["", "36 35", "36 - ", "x 35 0:1 / / rw - ext4 /dev/a rw", "36 35 0:1 / - ext4 a rw"]
)
def test_line_that_is_no_mount_is_left_out(line):
    assert mounts.list_mounts(f"{line}\n40 1 0:1 / /b rw - ext4 /dev/b rw\n")[0].number == 40
