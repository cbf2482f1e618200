"""Exports of runs of a user whose folders are like those on a cluster."""

import gzip
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import duckdb
import pytest

from tests import fake_framework, temporary_mounts

USER, PROGRAM = "quetzalcoatl", "xolotl"
HOME, WORK, SCRATCH = f"/gpfs/home/{USER}", f"/work2/05311/{USER}", f"/scratch/{USER}"
# A framework that names the user and his folders wherever it can.
FRAMEWORK = """
import getpass, sys
from pathlib import Path

PLACES = (getpass.getuser(), Path.home(), __file__, Path.cwd(), "%s/a b")
TEXT = " ".join(map(str, PLACES))
print(TEXT, file=sys.stderr)
"""
EVIDENCE = """
class Trainer(FakeTrainer):
    def runtime_info(self):
        return {**super().runtime_info(), "kernel_evidence": [TEXT], "exchange": [TEXT]}
"""
# Another user's program runs beside the commands. Their root is the real one, with the folders of
# the user, an entry in /etc/passwd, and an interpreter that all users can read.
SCRIPT = r"""
set -e
place=$1 adapters=$2 cache=$3 commands=$4 output=$5
shift 5
mount -t tmpfs tmpfs "$place"
mkdir "$place/up" "$place/work" "$place/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/up,workdir=$place/work" "$place/root"
root=$place/root
for name in proc dev sys; do mount --rbind "/$name" "$root/$name"; done
echo "$USER:x:4321:4321::$HOME:/bin/sh" >> "$root/etc/passwd"
for folder in "$HOME" "$WORK" "$SCRATCH"; do
    mkdir -p "$root$folder"
    chown 4321:4321 "$root$folder"
done
cp -r "$adapters" "$root$WORK/adapters"
mkdir "$root$HOME/.cache"
cp -rL "$cache" "$root$HOME/.cache/xfbench"
chown -R 4321:4321 "$root$WORK/adapters" "$root$HOME/.cache"
for folder in "$@"; do
    while [ "$folder" != / ]; do chmod a+rx "$root$folder"; folder=$(dirname "$folder"); done
done
cp /bin/sh "$root/usr/bin/$PROGRAM"
ulimit -t 100  # seconds of CPU time of each process, if this test is killed
chroot --userspec=4322:4322 "$root" "/usr/bin/$PROGRAM" -c 'while :; do :; done' &
neighbour=$!
trap 'kill $neighbour' EXIT
status=0
chroot --userspec=4321:4321 "$root" sh -ec "cd $SCRATCH; $commands" || status=$?
cp -r "$root$SCRATCH/." "$output"
exit $status
"""
RUN = (
    "{python} -m xfbench run --no-verify --workload lenet --batch-size 4 --data synthetic "
    "--steps 3 --warmup 1 --launches 1 --framework {framework} --results {results}"
)


def read_plainly(path):
    """Yield the name and the bytes of a file, and of each member if it is an archive."""
    if path.name.endswith((".tar", ".tar.gz")):
        with tarfile.open(path) as tar:
            for member in tar:
                yield f"{path.name}: {member.name}", tar.extractfile(member).read()
    if path.suffix == ".gz":
        yield f"{path.name}, unpacked", gzip.decompress(path.read_bytes())
    if path.suffix == ".parquet":
        yield f"{path.name}, rows", repr(duckdb.sql(f"FROM '{path}'").fetchall()).encode()
    yield str(path), path.read_bytes()


@pytest.mark.deep
def test_exports_of_a_cluster_name_no_user_and_no_program(tmp_path):
    temporary_mounts.require_mounting("unshare", "chroot")
    for framework in ("odd", "broken"):
        lines = FRAMEWORK % WORK + (
            "raise RuntimeError(TEXT)" if framework == "broken" else EVIDENCE
        )
        fake_framework.write(tmp_path / "adapters" / framework, lines)
    commands = [
        RUN.format(python=sys.executable, framework="odd", results=f"{SCRATCH}/results"),
        "! " + RUN.format(python=sys.executable, framework="broken", results=f"{SCRATCH}/results"),
        *(
            f"{sys.executable} -m xfbench results export {name}"
            for name in ("all.tar.gz", "rows.csv", "rows.parquet")
        ),
        f"{sys.executable} -m xfbench results submit submission",
        f"{sys.executable} -m xfbench report --output report.html",
    ]
    fake_framework.make_cache(tmp_path / "cache")
    for name in ("place", "output"):
        (tmp_path / name).mkdir()
    readable = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])]
    process = subprocess.run(
        [
            *("unshare", "--mount", "--propagation=private", "sh", "-c", SCRIPT, "sh"),
            *(str(tmp_path / name) for name in ("place", "adapters", "cache")),
            *("; ".join(commands), str(tmp_path / "output"), *readable),
        ],
        env={
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
            **{"HOME": HOME, "WORK": WORK, "SCRATCH": SCRATCH, "TMPDIR": SCRATCH},
            **{"USER": USER, "LOGNAME": USER, "PROGRAM": PROGRAM, "PYTHONDONTWRITEBYTECODE": "1"},
            "XFBENCH_ADAPTERS": f"{WORK}/adapters",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    # On a busy machine, the program may get too little time to be counted.
    assert PROGRAM in process.stderr or "used 0." in process.stderr
    output = tmp_path / "output"
    exported = [
        file for file in output.rglob("*") if file.is_file() and "results" not in file.parts
    ]
    assert {"all.tar.gz", "rows.csv", "rows.parquet", "report.html", "README.md"} <= {
        file.name for file in exported
    }
    records = [*(output / "results" / "records").rglob("*.json")]
    assert len(records) == 2
    contents = [each for file in [*exported, *records] for each in read_plainly(file)]
    for name, content in contents:
        for private in (USER, PROGRAM, "05311", "/gpfs", "/scratch"):
            assert private.encode() not in content, f"{private} in {name}"
