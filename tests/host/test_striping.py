"""The striping of files on Lustre, as `lfs` prints it. No test here has a real Lustre."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import command_runner, temporary_mounts
from xfbench.host import media, striping

MIB = 2**20
PLAIN = """Welcome to the cluster
{path}
lmm_stripe_count:  {count}
lmm_stripe_size:   {size}
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 75
\tobdidx\t\t objid\t\t objid\t\t group
\t    75\t      54697336\t    0x3429d78\t             0

"""
COMPOSITE = """/scratch/file
  lcm_layout_gen:    3
  lcm_mirror_count:  1
  lcm_entry_count:   3
    lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
      lmm_stripe_count:  0
      lmm_stripe_size:   1048576
      lmm_pattern:       mdt
      lmm_layout_gen:    0
      lmm_stripe_offset: 0

    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          init,prefer
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   268435456
      lmm_stripe_count:  4
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0
      lmm_objects:
      - 0: {{ l_ost_idx: 5, l_fid: [0x100050000:0x20f0:0x0] }}

    lcme_id:             3
    lcme_mirror_id:      0
    lcme_flags:          {flags}
    lcme_extent.e_start: 268435456
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  {count}
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0

"""
YAML = """  lcm_entry_count:   1
  component0:
    lcme_id:             1
    lcme_flags:          init
    sub_layout:
      lmm_stripe_count:  2
      lmm_stripe_size:   65536
"""
DAMAGED = """lmm_stripe_count: 5
lmm_stripe_count: -1
lmm_stripe_size: 1048576
lmm_stripe_count: 5
lmm_stripe_size: many
stripe_count: 3 stripe_size: 1048576
a lmm_stripe_count: 6
lmm_stripe_size: 4194304
"""


def plain(count, size=MIB, path="/scratch/file"):
    return PLAIN.format(path=path, count=count, size=size)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (plain(4), [(4, MIB)]),
        (plain(4) + plain(1, 65536) + plain(4), [(1, 65536), (4, MIB)]),
        (COMPOSITE.format(flags="0", count="-1"), [(0, MIB), (4, 4 * MIB)]),
        (COMPOSITE.format(flags="0", count="8") + plain(2), [(0, MIB), (2, MIB), (4, 4 * MIB)]),
        (COMPOSITE.format(flags="init", count="8"), [(0, MIB), (4, 4 * MIB), (8, 4 * MIB)]),
        (COMPOSITE.format(flags="init,stale,^x", count="8"), [(0, MIB), (4, 4 * MIB)]),
        (YAML, [(2, 65536)]),
        (DAMAGED, []),
        ("", []),
    ],
)
def test_layouts_of_all_forms_are_read(text, expected):
    assert [(part.count, part.bytes) for part in striping.parse_layouts(text)] == expected


def test_short_text_names_each_striping():
    text = media.describe_striping(striping.parse_layouts(plain(1, 65536) + plain(4)))
    assert text == "1 stripe of 64 KiB and 4 stripes of 1 MiB"


# A fake `lfs`: the name of the folder above a file's folder is the count of its stripes.
FAKE_LFS = """#!{python}
import pathlib, sys
open({log!r}, "a").write(" ".join(sys.argv[1:]) + chr(10))
for name in sys.argv[2:]:
    count = pathlib.Path(name).parent.name.removeprefix("stripes")
    print({layout!r}.format(path=name, count=count, size=1 << 20))
"""
# Mount a tmpfs at $1, write it as Lustre in a copy of this process's mountinfo, and go on.
LUSTRE_MOUNT = """
mount -t tmpfs t "$1" && sed -E "s|^([0-9]+ .*) - tmpfs t rw|\\1 - lustre 10.1.1.1@o2ib:/w rw|" \
  /proc/$$/mountinfo > "$2"
mount --bind "$2" /proc/$$/mountinfo && shift 2 && exec "$@"
"""
RUN_COMMANDS = """
import contextlib, json, sys
from xfbench.cli import main
for line in json.loads(sys.argv[1]):
    sys.argv = ["xfbench", *line]
    with contextlib.suppress(SystemExit):
        main()
"""


def write_lfs(folder):
    """A folder with the fake `lfs`, and the file to which it writes its calls."""
    (folder / "bin").mkdir()
    program, log = folder / "bin" / "lfs", folder / "calls"
    program.write_text(FAKE_LFS.format(python=sys.executable, log=str(log), layout=PLAIN))
    program.chmod(0o755)
    return folder / "bin", log


def run_on_lustre(tmp_path, lines, path):
    """The documents that the commands print, on a file system that says that it is Lustre."""
    temporary_mounts.require_mounting("unshare", "sed")
    folder = tmp_path / "scratch"
    folder.mkdir(exist_ok=True)
    command = ["unshare", "-m", "sh", "-c", LUSTRE_MOUNT, "sh", folder, tmp_path / "mountinfo"]
    completed = subprocess.run(
        [*command, sys.executable, "-c", RUN_COMMANDS, json.dumps(lines)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
    )
    assert completed.returncode == 0, completed.stderr
    return [json.loads(line) for line in completed.stdout.splitlines()], completed.stderr


PREPARE = [
    ["data", "prepare", "digits", "--to", f"scratch/stripes{count}", "--json"] for count in (1, 4)
]
DRY_RUN = ["run", "--framework", "reference", "--workload", "lenet", "--dry-run", "--json"]
DRY_RUN += ["--data", "./scratch/stripes1,./scratch/stripes4"]


@pytest.mark.case("Lustre files with different stripe counts")
def test_stripe_counts_on_lustre_are_recorded_and_make_cells(tmp_path):
    programs, log = write_lfs(tmp_path)
    read = ["machine", "--read", "scratch/stripes4", "--read-size", "8", "--json"]
    documents, _ = run_on_lustre(
        tmp_path, [*PREPARE, read, DRY_RUN], f"{programs}:{os.environ['PATH']}"
    )
    medium, plan = documents[2]["medium"], documents[3]
    assert medium["striping"] == [{"count": 4, "bytes": MIB}]
    media_of_cells = [request["data_set"]["medium"] for request in plan["requests"]]
    assert sorted(set(media_of_cells)) == [
        "lustre on network (1 stripe of 1 MiB)",
        "lustre on network (4 stripes of 1 MiB)",
    ]
    calls = log.read_text().splitlines()
    assert len(calls) == 2 and all(call.count(".pixels") == 2 for call in calls), calls


def test_without_lfs_the_striping_is_unknown(tmp_path):
    folders = map(Path, os.environ["PATH"].split(os.pathsep))
    path = os.pathsep.join(str(folder) for folder in folders if not (folder / "lfs").exists())
    run = [*DRY_RUN[:-1], "./scratch/stripes1"]
    documents, messages = run_on_lustre(tmp_path, [PREPARE[0], run], path)
    assert documents[-1]["requests"][0]["data_set"]["medium"] == "lustre on network"
    assert "lfs" not in messages


def test_lfs_is_not_run_on_other_file_systems(tmp_path, monkeypatch, capsys):
    programs, log = write_lfs(tmp_path)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    run = command_runner.make_runner(monkeypatch, capsys, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_bytes(b"x")
    outcome = run("machine", "--read", tmp_path / "data", "--read-size", "8", "--json")
    assert json.loads(outcome.stdout)["medium"]["striping"] == [] and not log.exists()
