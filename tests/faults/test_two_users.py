"""Two users on one machine, one of them hostile, share a folder that the other created first.

Nothing of the honest user, Alice, is replaced or overwritten. Otherwise xfbench refuses to start.
"""

import errno
import grp
import json
import os

import pytest

from tests.other_users import (
    ALICE,
    MALLORY,
    SHARED_GROUP,
    assert_refused,
    check_as,
    list_tree,
    require_other_users,
    require_two_accounts_of_a_group,
    run_as,
)
from xfbench.environments import environment, worker_archive
from xfbench.model import adapter
from xfbench.store import merging
from xfbench.store.results_folder import Store

RUN = "run --framework reference --workload lenet --data synthetic --no-verify --results".split()


PRIVATE_RUNS = {
    "a private run folder": lambda run: run.chmod(0o700),
    "a run folder that only lists": lambda run: run.chmod(0o744),
    "a private file": lambda run: (run / "stdout").chmod(0o600),
    "private runs": lambda run: run.parent.chmod(0o700),
}


@pytest.fixture(autouse=True)
def _others():
    require_other_users()


@pytest.fixture
def shared(open_folder):
    """A folder like `/tmp`, with a results folder of one record to import, `source`."""
    open_folder.chmod(0o1777)
    return open_folder


@pytest.fixture
def source(shared, record):
    """A results folder with one record, to import."""
    store = Store(shared / "source")
    store.create_and_check_folders()
    store.add(record())
    return store.folder


def plant_copies(folder, content, owner):
    (folder / "copies.json").write_text(json.dumps(content))
    os.chown(folder / "copies.json", owner, owner)


def make(path, owner, mode=0o755, group=None):
    path.mkdir(parents=True)
    path.chmod(mode)
    os.chown(path, owner, owner if group is None else group)
    path.chmod(mode)  # chown clears the set-group-id bit
    return path


def make_link_of_mallory(results):
    make(results, ALICE, 0o1777)
    make(results.parent / "elsewhere", ALICE)
    (results / "runs").symlink_to(results.parent / "elsewhere")
    os.lchown(results / "runs", MALLORY, MALLORY)


def link_to_results(folder, results):
    """In `folder`, make a link to the folder of a new results folder."""
    (folder / "alice").symlink_to(make(results.parent / "home", ALICE))
    make(folder / "alice" / "results", ALICE)


FOREIGN_RESULTS = {
    "Mallory's folder that all may write": (
        lambda results: make(results, MALLORY, 0o1777),
        "results belongs to another user",
    ),
    "Mallory's folder that looks closed": (
        lambda results: make(results, MALLORY),
        "results belongs to another user",
    ),
    "no sticky bit": (
        lambda results: make(results, ALICE, 0o777),
        "results is writable by all users",
    ),
    "a group's folder": (
        lambda results: make(results, ALICE, 0o775, SHARED_GROUP),
        "results is writable by its group",
    ),
    "a folder above": (
        lambda results: make(make(results.parent / "open", ALICE, 0o777) / "results", ALICE),
        "open is writable by all users",
    ),
    **{
        f"Mallory's {name} in Alice's folder": (
            lambda results, name=name: make(make(results, ALICE, 0o1777) / name, MALLORY, 0o777),
            f"{name} belongs to another user",
        )
        for name in ("runs", "jobs", "certificates", "tuned", "records", "packs", "origins")
    },
    "a link that all may replace": (
        lambda results: link_to_results(make(results.parent / "open", ALICE, 0o777), results),
        "open is writable by all users",
    ),
    "Mallory's link to Alice's folder": (make_link_of_mallory, "runs belongs to another user"),
}


PLANTED_RESULTS = ("open/results", "open/alice/results")


@pytest.mark.parametrize("case", FOREIGN_RESULTS)
def test_results_folder_that_others_control_is_refused(shared, source, case):
    plant, reason = FOREIGN_RESULTS[case]
    results = shared / "results"
    plant(results)
    folder = next((p for p in map(shared.joinpath, PLANTED_RESULTS) if p.exists()), results)
    before = list_tree(shared)
    completed = run_as(ALICE, "results", "import", source, "--results", folder, folder=shared)
    assert_refused(completed, reason, "--results")
    assert list_tree(shared) == before


VERIFY = "verify --framework reference --workload lenet --results".split()


@pytest.mark.parametrize("arguments", [RUN, VERIFY, ["results", "pack", "--results"]])
def test_no_command_writes_to_a_folder_that_others_control(shared, source, arguments):
    os.chown(source, MALLORY, MALLORY)
    source.chmod(0o1777)
    before = list_tree(source)
    completed = run_as(ALICE, *arguments, source, folder=shared)
    assert_refused(completed, "source belongs to another user", "--results")
    assert list_tree(source) == before
    assert "environments ready" not in completed.stderr, "it is refused before anything starts"


def test_readme_is_not_written_through_a_link(shared, source):
    results = make(shared / "results", 0, 0o1777)
    mail = shared / "mail"
    (results / "README").symlink_to(mail)
    os.lchown(results / "README", MALLORY, MALLORY)
    completed = run_as(ALICE, "results", "import", source, "--results", results, folder=shared)
    assert completed.returncode == 0, completed.stderr
    assert not mail.exists() and (results / "README").is_symlink()


def test_second_user_of_a_folder_is_refused_and_nothing_is_lost(shared, source):
    results = make(shared / "results", 0, 0o1777)
    importing = ("results", "import", source, "--results", results)
    assert run_as(ALICE, *importing, folder=shared).returncode == 0
    before = list_tree(results)
    assert_refused(
        run_as(MALLORY, *importing, folder=shared), "records belongs to another user", "--results"
    )
    assert list_tree(results) == before
    listed = run_as(MALLORY, "results", "list", "--results", results, folder=shared)
    assert listed.returncode == 0 and "lenet" in listed.stdout, "others may read it"
    assert list_tree(results) == before


def test_members_of_a_trusted_group_share_a_results_folder(shared, source, record):
    group_id, first, second = require_two_accounts_of_a_group()
    results = make(shared / "results", second, 0o2770, group_id)
    options = {"folder": shared, "groups": [group_id], "umask": 0o002}
    importing = ("results", "import", source, "--results", results)
    assert_refused(run_as(first, *importing, **options), "belongs to another user")
    options["XFBENCH_TRUSTED_GROUP"] = grp.getgrgid(group_id).gr_name
    assert run_as(first, *importing, **options).returncode == 0
    Store(source).add(record(launch=2))
    completed = run_as(second, *importing, **options)
    assert completed.returncode == 0, completed.stderr
    assert len(list(Store(results).records())) == 2
    assert run_as(first, "results", "pack", "--results", results, **options).returncode == 0
    assert len(list(Store(results).records())) == 2
    options["XFBENCH_TRUSTED_GROUP"] = "no-such-group"
    assert_refused(run_as(first, *importing, **options), "there is no group 'no-such-group'")


def test_trusted_group_does_not_make_its_folders_owner_a_member(shared, source):
    """Below a folder with the mode 3777, every user's new folder has the group."""
    results = make(shared / "results", MALLORY, 0o2755, SHARED_GROUP)
    for group in (grp.getgrgid(SHARED_GROUP).gr_name, str(SHARED_GROUP)):
        completed = run_as(
            *(ALICE, "results", "import", source, "--results", results),
            folder=shared,
            XFBENCH_TRUSTED_GROUP=group,
        )
        assert_refused(completed, "belongs to another user", "--results")


def test_trusted_group_may_be_a_number(shared, source):
    """The group of a Kubernetes volume has no name."""
    results = make(shared / "results", 0, 0o2775, 54321)
    importing = ("results", "import", source, "--results", results)
    options = {"folder": shared, "groups": [54321]}
    assert_refused(run_as(ALICE, *importing, **options), "is writable by its group", "--results")
    completed = run_as(ALICE, *importing, **options, XFBENCH_TRUSTED_GROUP="54321")
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("place", ["results", "volume/results"])
@pytest.mark.parametrize("trusted", ["results", "volume"])
def test_trusted_folders_are_accepted_whatever_their_modes(shared, source, place, trusted, record):
    """On some mounts, everything has the mode 0777 and belongs to one user."""
    volume = make(shared / "volume", 0, 0o777)
    results = make(volume / "results", MALLORY, 0o777)
    (shared / "results").symlink_to(results)
    os.lchown(shared / "results", ALICE, ALICE)
    importing = ("results", "import", source, "--results", shared / place)
    completed = run_as(ALICE, *importing, folder=shared)
    assert_refused(completed, "belongs to another user", "set XFBENCH_TRUSTED_FOLDERS=")
    trusted_folder = results if trusted == "results" else volume
    options = {"folder": shared, "XFBENCH_TRUSTED_FOLDERS": f"/nowhere:{trusted_folder}"}
    assert run_as(ALICE, *importing, **options).returncode == 0
    [first] = Store(source).records()
    copy, second = record(launch=2), record(launch=3)
    (results / "copies.json").write_text(json.dumps({copy.id: first.id}))
    for path in results.rglob("*"):
        os.chown(path, MALLORY, MALLORY)
        path.chmod(0o777)
    Store(source).add(copy)
    Store(source).add(second)
    completed = run_as(ALICE, *importing, **options)
    assert completed.returncode == 0, completed.stderr
    ids = {each.id for each in Store(results).records()}
    assert ids == {first.id, second.id}, "the file says that the other is a copy"
    os.lchown(shared / "results", MALLORY, MALLORY)
    refused = run_as(ALICE, *importing, **options).returncode != 0
    assert refused == (place == "results"), "a link elsewhere is not in the trusted folder"


def test_trusted_folder_excuses_the_folders_above(shared, source):
    volume = make(shared / "volume", ALICE, 0o777)
    results = make(volume / "results", ALICE)
    importing = ("results", "import", source, "--results", results)
    completed = run_as(ALICE, *importing, folder=shared)
    advice = f"set XFBENCH_TRUSTED_FOLDERS={results}"
    assert_refused(completed, "volume is writable by all users", advice)
    options = {"folder": shared, "XFBENCH_TRUSTED_FOLDERS": str(results)}
    completed = run_as(ALICE, *importing, **options)
    assert completed.returncode == 0, completed.stderr
    options["XFBENCH_TRUSTED_FOLDERS"] = "results"
    completed = run_as(ALICE, *importing, **options)
    assert_refused(completed, "XFBENCH_TRUSTED_FOLDERS: results is not an absolute path")


def test_bundle_in_a_folder_of_others_is_refused(shared):
    folder = make(shared / "bundle", MALLORY, 0o777)
    completed = run_as(ALICE, *RUN[:-1], "--bundle", folder, folder=shared)
    assert_refused(completed, "bundle belongs to another user", "--bundle")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("planted", ["nothing", "links"])
def test_index_in_a_folder_of_others_is_neither_made_nor_locked(shared, source, planted):
    """A lock could be created through a link of the folder's owner."""
    os.chown(source, MALLORY, MALLORY)
    source.chmod(0o1777)
    for name in ("lock", "index.duckdb", "index.duckdb.wal") if planted == "links" else ():
        (source / name).symlink_to(shared / f"new-{name}")
    before = list_tree(source)
    completed = run_as(ALICE, "results", "list", "--results", source, folder=shared)
    assert completed.returncode == 0 and "lenet" in completed.stdout, completed.stderr
    assert list_tree(source) == before and not list(shared.glob("new-*"))


@pytest.mark.parametrize(
    ("owner", "mode", "group", "reason"),
    [
        (MALLORY, 0o755, MALLORY, "belongs to another user"),
        (MALLORY, 0o1777, MALLORY, "belongs to another user"),
        (ALICE, 0o1777, ALICE, "is writable by all users"),
        (ALICE, 0o775, SHARED_GROUP, "is writable by its group"),
        (ALICE, 0o3775, SHARED_GROUP, "is writable by its group"),
    ],
)
def test_cache_that_others_control_is_refused(shared, owner, mode, group, reason):
    cache = make(shared / "cache", owner, mode, group)
    completed = run_as(
        ALICE, "env", "list", folder=shared, XFBENCH_HOME=str(cache), groups=[SHARED_GROUP]
    )
    assert_refused(completed, reason, "XFBENCH_HOME")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("environments", ["env", "list"]),
        ("environments/TORCH", ["env", "create", "torch"]),
        ("workers", [*RUN, "results"]),
        ("workers/ARCHIVE", [*RUN, "results"]),
        ("certificates", [*(word for word in RUN if word != "--no-verify"), "results"]),
        ("peaks", [*RUN, "results"]),
        ("handover", "tune --framework reference --workload lenet --budget 1s".split()),
        ("studies", "study run data-format --size smoke --dry-run".split()),
    ],
)
def test_folder_of_another_user_in_the_cache_is_refused(shared, name, arguments):
    """A cache that was once open to a group may contain folders of its members."""
    torch = environment._environment_folder(adapter.load("torch")).name
    archive = worker_archive.ensure_worker_archive("reference").name
    name = name.replace("TORCH", torch).replace("ARCHIVE", archive)
    folder = make(shared / "cache", ALICE) / name
    make(folder, MALLORY)
    os.chown(shared / "cache" / name.split("/")[0], ALICE if "/" in name else MALLORY, ALICE)
    completed = run_as(ALICE, *arguments, folder=shared, XFBENCH_HOME=str(shared / "cache"))
    assert_refused(completed, f"{folder} belongs to another user: remove it")


def test_new_folders_are_closed_to_the_group_whatever_the_umask(shared, source):
    """Many sites set the umask 002 and give all users the same group."""
    cache, results = shared / "new" / "cache", shared / "new" / "results"
    (shared / "new").mkdir()
    os.chown(shared / "new", ALICE, SHARED_GROUP)
    (shared / "new").chmod(0o2755)
    options = {"folder": shared, "umask": 0o002, "XFBENCH_HOME": str(cache)}
    for command in (
        ("data", "prepare", "digits"),
        ("results", "import", source, "--results", results),
        ("data", "list"),
        ("results", "import", source, "--results", results),
    ):
        completed = run_as(ALICE, *command, **options)
        assert completed.returncode == 0, completed.stderr
    assert (cache / "data" / "digits-raw").is_dir()
    assert len(list(Store(results).records())) == 1
    open_paths = [path for path in (shared / "new").rglob("*") if path.lstat().st_mode & 0o022]
    assert open_paths == []


@pytest.mark.parametrize("name", PRIVATE_RUNS)
def test_the_results_of_another_user_are_merged_without_private_files(
    name, shared, record, run_inline
):
    """The run folder of each launch has the mode 0700."""
    theirs, ours = Store(shared / "theirs"), Store(shared / "ours")
    theirs.create_and_check_folders()
    run = theirs.create_run_folder()
    run.chmod(0o755)
    for file in ("stdout", "request.json"):
        (run / file).write_text("private")
    theirs.add(record(), run)
    run_inline("results", "import", theirs.folder, "--results", shared / "imported-before")
    PRIVATE_RUNS[name](theirs.run_folder(next(theirs.records())))
    for path in (theirs.folder, *theirs.folder.rglob("*")):
        os.chown(path, MALLORY, MALLORY)

    def check():
        result = run_inline("results", "import", theirs.folder, "--results", ours.folder)
        assert result.returncode == 0, result.stderr
        assert result.stderr.count("files of 1 run were left out") == 1
        assert "1 records imported" in result.stdout

    check_as(ALICE, check)
    [copied] = ours.records()
    runs = [*(ours.folder / "runs").rglob("*")]
    run = ours.run_folder(copied)
    assert runs == ([run, run / "request.json"] if name == "a private file" else [])


def test_no_run_folder_stays_if_the_target_is_full(source, shared, run_inline, monkeypatch):
    [record] = Store(source).records()
    Store(source).run_folder(record).mkdir()
    (Store(source).run_folder(record) / "stdout").write_text("text")

    def copy(source, target, **_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(merging, "copy_content", copy)
    result = run_inline("results", "import", source, "--results", shared / "ours")
    assert result.returncode == 2 and "No space left" in result.stderr
    assert [*(shared / "ours" / "runs").iterdir()] == []


@pytest.mark.parametrize("owner", [MALLORY, ALICE])
def test_only_an_own_list_of_copies_decides_what_is_imported(shared, source, record, owner):
    """Mallory creates the file in Alice's folder, as all users may."""
    ours = Store(make(shared / "ours", ALICE, 0o1777))
    [theirs], mine = Store(source).records(), record(launch=7)
    ours.add(mine)
    for path in ours.folder.rglob("*"):
        os.chown(path, ALICE, ALICE)
    plant_copies(ours.folder, {theirs.id: mine.id}, owner)
    completed = run_as(ALICE, "results", "import", source, "--results", ours.folder, folder=shared)
    assert completed.returncode == 0, completed.stderr
    assert len([*ours.records()]) == (2 if owner == MALLORY else 1)


@pytest.mark.parametrize("content", [{"sha256:1": []}, {"sha256:1": {"a": 1}}, [], "text", None])
def test_a_damaged_list_of_copies_is_ignored(source, shared, content, run_inline):
    plant_copies(make(shared / "ours", os.getuid()), content, os.getuid())
    result = run_inline("results", "import", source, "--results", shared / "ours")
    assert result.returncode == 0 and "1 records imported" in result.stdout
