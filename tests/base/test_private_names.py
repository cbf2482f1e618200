"""Private names in texts: what is masked, and what stays."""

import os
from types import SimpleNamespace

import pytest

from xfbench.base import name_hashes, private_names
from xfbench.base.private_names import KnownNames, describe_private_name, mask_known_names

KNOWN = KnownNames(("quetzal", "node7"), ("/proj/deep/quetzal/run", "/weird/place"))
FOLDERS_OF_USERS = [
    *("/home/NAME", "/home1/NAME", "/home1/05311/NAME", "/gpfs/home/NAME", "/mnt/home/NAME"),
    *("/global/homes/n/NAME", "/global/u1/n/NAME", "/p/home/jusers/NAME", "/Users/NAME"),
    *("/work/NAME", "/work2/05311/NAME", "/scratch/NAME", "/scratch1/05311/NAME"),
    *("/scratch-local/NAME", "/scratch/users/NAME", "/lustre/scratch/NAME", "/ptmp/NAME"),
    *("/corral-repl/05311/NAME", "/stockyard/05311/NAME", "/lustre/a/b/work/NAME"),
    *("/beegfs/scratch/NAME", "/mnt/scratch/NAME", "/p/scratch/NAME", "/pscratch/data/NAME"),
    *("/cluster/work/NAME", "/net/project/NAME", "/network/scratch/NAME", "/vast/projects/NAME"),
    *("/ceph/user/NAME", "/ptmp/sd/NAME", "/export/data2/NAME", "/gpfs/u7/n/NAME"),
    *("/global/scratch/NAME", "/nfs/work/NAME", "/work/users/NAME", "/scratch/n/NAME"),
    *("/pscratch/NAME", "/ptmp/n/NAME"),
    *("/pscratch/sd/n/NAME", "/nfs/users/n/NAME", "/gpfs/scratch/NAME", "/workspace/NAME"),
]


def test_names_that_many_machines_share_are_no_hosts():
    hosts = {name_hashes.host_hash(name) for name in ("vm", "node", "cn17")}
    assert describe_private_name("kernel 6.18-vm of a node", hosts) is None
    assert describe_private_name("kernel 6.18-cn17", hosts) == "the host cn17"


@pytest.mark.parametrize("folder", FOLDERS_OF_USERS)
def test_folders_of_users_are_masked_and_found(folder):
    for text, masked in (
        (f"no {folder}/run/x.json", "no …/run/x.json"),
        (f"'{folder}'", "'…'"),
        (f"PATH=/usr/bin:{folder}/bin", "PATH=/usr/bin:…/bin"),
        (f"file://{folder}/a", "…/a"),
    ):
        assert mask_known_names(text, KNOWN) == masked
        assert describe_private_name(text, set()) == "the home folder of NAME"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("quetzal's job on NODE7", "…'s job on …"),
        ("user=quetzal_1 aquetzal node70", "user=…_1 aquetzal node70"),
        ("in /proj/deep/quetzal/run/results/1", "in …/results/1"),
        ("/weird/place or /weird/place2/x", "… or …"),
        ("/a/b/c/d.json and /data/x", "…/d.json and …"),
        ("/dev/shm/x/y/z /tmp/x", "…/z …"),
        ("/usr/../srv/jane/x", "…/x"),
        ("/run/user/1000/a/b /opt/tmp/x/y/z /usr/tmp/v/w /usr/local/home/q", "…/b …/z …/w …"),
        ("mail q@example.org", "mail …"),
        ("[cn17:12345] no route", "[…:12345] no route"),
        ("[ip-10-0-0-7.lab:12345:0:99] caught", "[…:12345:0:99] caught"),
        ("rank 1 on node cn17.lab.example exited.", "rank 1 on node … exited."),
        ("Local host:   cn17", "Local host:   …"),
        ("node login.lab exited, Hostname: cn17", "node … exited, Hostname: …"),
        ("node b12", "node …"),
        ('hosts "cn1" and node=10.0.0.7', 'hosts "…" and node=…'),
        ("https://a:b@host/simple/x", "https://…@host/simple/x"),
    ],
)
def test_known_names_and_unknown_paths_are_masked(text, masked):
    assert mask_known_names(text, KNOWN) == masked


@pytest.mark.parametrize(
    "text",
    [
        *("/usr/lib/x86_64-linux-gnu/libopenblas.so.0", "100 images/s and /s", "and/or", "1/2"),
        *("https://pypi.org/simple/a/b", "torch/lib/libx.so", "/home/", "", "/dev/nvidia0", "~/x"),
        *("host memory", "node 3", "per node. Then", "2 nodes of 4 GPUs", "host 127.0.0.1:80"),
        *("host float32 buffer", "host x86_64", "node 2x faster", "[rank1]: x", "[cuda:0] [0:12]"),
        *("/opt/intel/lib/libmkl.so", "…/data", "root cause", "torch@2.1"),
        "file:///usr/lib/python3/dist-packages/x.py",
    ],
)
def test_texts_without_private_names_stay(text):
    assert mask_known_names(text, KNOWN) == text
    assert describe_private_name(text, set()) is None


def test_hosts_of_pbs_and_lsf_are_known(monkeypatch, tmp_path):
    (tmp_path / "nodes").write_text("zebra.lab.example\nzebra.lab.example\n10.0.0.7\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    monkeypatch.setenv("LSB_HOSTS", "yak yak")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "login 1 emu 24")
    known = private_names.known_names()
    assert {"zebra.lab.example", "zebra", "10.0.0.7", "yak", "emu"} <= {*known.words}
    assert not {"login", "10", "1", "24"} & {*known.words}
    monkeypatch.setenv("LSB_DJOB_HOSTFILE", str(tmp_path / "nodes"))
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "missing"))
    assert "zebra" in private_names.known_names().words
    monkeypatch.delenv("LSB_DJOB_HOSTFILE")
    assert "zebra" not in private_names.known_names().words


def test_known_names_come_from_account_and_variables(monkeypatch, tmp_path):
    for name, value in {
        **{"USER": "quetzal", "LOGNAME": "root", "HOME": "/gpfs/q", "SCRATCH": "/s/q"},
        **{"TACC_WORK": "/w/q", "WORK": "1", "TMPDIR": "/tmp", "XFBENCH_DATA": "/usr/share/data"},
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(private_names.platform, "node", lambda: "c1-17.cluster.example")
    monkeypatch.chdir(tmp_path)
    known = private_names.known_names([tmp_path / "results"])
    assert {"quetzal", "c1-17.cluster.example", "c1-17"} <= {*known.words}
    assert "root" not in known.words
    folders = {"/gpfs/q", "/s/q", "/w/q", str(tmp_path), str(tmp_path / "results")}
    assert folders <= {*known.folders}
    assert not {"/tmp", "1", "/usr/share/data"} & {*known.folders}


@pytest.fixture
def no_user(monkeypatch, tmp_path):
    """Remove what names a user, and make a working folder."""
    for name in ("USER", "LOGNAME", "SLURM_JOB_USER", "HOME", "PWD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("variable", ["USER", "LOGNAME", "SLURM_JOB_USER"])
def test_each_name_of_the_user_is_known(no_user, monkeypatch, variable):
    assert "quetzal" not in private_names.known_names().words
    monkeypatch.setenv(variable, "quetzal")
    assert "quetzal" in private_names.known_names().words


@pytest.mark.parametrize(
    "variable",
    [
        *("HOME", "PWD", "TMPDIR", "SCRATCH", "WORK", "PROJECT", "STORE", "DATA", "TACC_STORE"),
        *("WORK2", "XFBENCH_HOME", "XFBENCH_RESULTS", "XFBENCH_DATA", "XDG_CACHE_HOME"),
    ],
)
def test_each_folder_of_the_user_is_known(no_user, monkeypatch, variable):
    monkeypatch.setenv(variable, "/strange/../q//deep")
    assert "/q/deep" in private_names.known_names().folders


def test_account_is_known_unless_there_is_none(no_user, monkeypatch):
    account = SimpleNamespace(pw_name="quetzal", pw_dir="/strange/q")
    monkeypatch.setattr(private_names.pwd, "getpwuid", {os.getuid(): account}.__getitem__)
    known = private_names.known_names()
    assert "quetzal" in known.words and "/strange/q" in known.folders
    monkeypatch.setattr(private_names.pwd, "getpwuid", {}.__getitem__)
    known = private_names.known_names()
    assert "quetzal" not in known.words and "/strange/q" not in known.folders


def test_deleted_working_folder_has_no_name(no_user, monkeypatch, tmp_path):
    (tmp_path / "deleted").mkdir()
    monkeypatch.chdir(tmp_path / "deleted")
    (tmp_path / "deleted").rmdir()
    assert private_names.known_names([tmp_path]).folders


def test_longest_names_are_replaced_first(no_user, monkeypatch):
    for name, value in {
        **{"USER": "ann", "LOGNAME": "ann-marie", "SLURM_JOB_USER": "marie"},
        **{"WORK": "/q/ab", "SCRATCH": "/q/ab/deep", "PROJECT": "/q/ab/deep/er"},
    }.items():
        monkeypatch.setenv(name, value)
    known = private_names.known_names()
    assert mask_known_names("ann-marie has /q/ab/deep/er,", known) == "… has …,"
    assert [len(word) for word in known.words] == sorted(map(len, known.words), reverse=True)


def test_long_texts_are_masked_in_linear_time():
    for part in ("/", "/a", " /a", "/home", "a@", "/lustre/a/b/", "/.-", "[a1", "node a", " host"):
        mask_known_names(part * 300_000, KNOWN)
        describe_private_name(part * 30_000, set())


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("lost node[0001-0003,0007]-ib0 and others", "node0003-ib0"),
        ("lost node[0001-0003, 0007]", "node0007"),
        ("rank_on_NODE7-ib0.example.org", "node7"),
        ("of x.c1-17.lab", "c1-17"),
    ],
)
def test_hosts_in_lists_and_in_words_are_found(text, host):
    assert describe_private_name(text, {name_hashes.host_hash(host)}) == f"the host {host}"


def test_endless_lists_and_words_are_searched_in_part():
    hosts = {name_hashes.host_hash(name) for name in ("n20000", "vm")}
    for text in ("n[0-99999999999]", f"n[{'9' * 5000}]", "a." * 3000, "kernel-vm"):
        assert describe_private_name(text, hosts) is None


def test_words_are_compared_with_hashes_of_all_versions(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for hashes in (
        {name_hashes.host_hash("node7")},
        {name_hashes.host_hash_of_earlier_versions("node7")},
    ):
        assert describe_private_name("rank 0 on node7 died", hashes) == "the host node7"
        assert describe_private_name("rank 0 on node8 died", hashes) is None
