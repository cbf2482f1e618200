"""Site files: built-in sites, user sites and errors in site files."""

import pytest

from xfbench.base.errors import UsageError
from xfbench.host import sites
from xfbench.planning import experiment


@pytest.fixture(autouse=True)
def user_sites_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    sites.load_site.cache_clear()
    folder = tmp_path / "xfbench" / "sites"
    folder.mkdir(parents=True)
    yield folder
    sites.load_site.cache_clear()


def test_built_in_sites_load_and_list_unverified_facts():
    assert sites.list_site_names() == [
        "generic-slurm",
        "maverick",
        "stampede2",
        "summitdev",
        "workstation",
    ]
    site_by_name = {name: sites.load_site(name) for name in sites.list_site_names()}
    for name in ("stampede2", "maverick", "summitdev"):
        assert site_by_name[name].unverified
    knl = site_by_name["stampede2"]
    assert (knl.cores, knl.reserved_cores) == (68, 4)
    assert knl.queues["skx-normal"].reserved_cores == 2
    assert "--array" in knl.forbidden


def test_user_site_extends_a_built_in_site(user_sites_folder):
    (user_sites_folder / "mine.toml").write_text(
        'title = "Our site"\nextends = "stampede2"\nqueue = "skx-normal"\naccount = "A1"\n'
        '[modules.frameworks]\ntorch = ["pytorch/2.1"]\n'
    )
    user_site = sites.load_site("mine")
    assert (user_site.account, user_site.cores) == ("A1", 68)
    assert set(user_site.modules.frameworks) == {"caffe", "torch"}
    assert "mine" in sites.list_site_names()


def test_a_site_without_a_title_is_named_after_its_file(user_sites_folder):
    (user_sites_folder / "ours.toml").write_text('launcher = "slurm"\n')
    assert sites.load_site("ours").title == "ours"


def test_reserved_cores_are_those_of_the_queue_of_this_job(monkeypatch):
    knl = sites.load_site("stampede2")
    monkeypatch.delenv("SLURM_JOB_PARTITION", raising=False)
    assert knl.reserved_cores_here() == 4
    monkeypatch.setenv("SLURM_JOB_PARTITION", "skx-normal")
    assert knl.reserved_cores_here() == 2
    monkeypatch.setenv("SLURM_JOB_PARTITION", "unknown")
    assert knl.reserved_cores_here() == 4


def test_user_site_may_extend_the_site_of_the_same_name(user_sites_folder):
    (user_sites_folder / "stampede2.toml").write_text(
        'title = "S2"\nextends = "stampede2"\nqueue = "long"\n'
    )
    assert (sites.load_site("stampede2").queue, sites.load_site("stampede2").cores) == ("long", 68)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('title = "x"\n\nqueu = "a"\n', "line 3: unknown setting 'queu': did you mean queue?"),
        (
            'title = "x"\n[queues.a]\nmax_node = 3\n',
            "line 3: queues.a: unknown setting",
        ),
        ('title = "x"\ncores = 0\n', "line 2: cores: give at least 1 (got 0)"),
        ('title = "x"\nlauncher = "lfs"\n', "line 2: launcher: Input should be 'local', 'mpi'"),
        ('title = "x"\nextends = "nowhere"\n', "line 2: no such site: nowhere"),
        ('title = "x"\nextends = "own"\n', "line 2: no such site: own"),
        ('title = "x"\ncores = \n', "Invalid value"),
        (
            'title = "x"\nextends = "stampede2"\nscript_options = [\n"-v",\n"--mem=4G"]\n',
            "line 5: --mem=4G is forbidden at this site",
        ),
    ],
)
def test_invalid_site_file_is_reported_with_its_line(user_sites_folder, text, words):
    (user_sites_folder / "own.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        sites.load_site("own")
    assert words in str(error.value)
    assert "own.toml" in str(error.value)


def test_unknown_site_error_suggests_a_near_name():
    with pytest.raises(UsageError, match="did you mean stampede2"):
        sites.load_site("stampede")


def cells(**settings):
    all_settings = {"framework": ["torch"], "workload": ["lenet"], **settings}
    return [
        cell for cell, _ in experiment.expand_matrices([experiment.build_matrix(**all_settings)])
    ]


def test_threads_follow_from_the_free_cores_of_a_site_node():
    [knl] = cells(site="stampede2")
    assert (knl.threads, knl.launcher, knl.environment) == (64, "slurm", "managed")
    [skx] = cells(site="stampede2", partition="skx-normal")
    assert skx.threads == 46
    spread = cells(site="stampede2", ranks=[4], nodes=[1, 2], scaling="weak")
    assert [(cell.nodes, cell.threads) for cell in spread] == [(1, 16), (2, 32)]


def test_site_modules_are_the_environment():
    [cell] = cells(site="stampede2", framework=["caffe"])
    assert cell.environment == "modules"


def test_render_only_site_is_not_started():
    with pytest.raises(UsageError, match="cannot submit jobs to lsf"):
        cells(site="summitdev")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nodes": [2]}, "divided evenly"),
        ({"ranks": [3], "nodes": [2], "scaling": "weak"}, "divided evenly"),
        ({"ranks": [2], "nodes": [2], "scaling": "weak"}, "launcher local runs on one node"),
        ({"launcher": "slrum"}, "did you mean slurm"),
    ],
)
def test_invalid_node_settings_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        cells(**settings)


def test_a_site_file_is_found_from_the_folder_of_a_job(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('title = "mine"\n')
    monkeypatch.chdir(tmp_path)
    settings = {"framework": ["reference"], "workload": ["lenet"], "launches": 1}
    [(cell, _)] = experiment.expand_matrices(
        [experiment.build_matrix(**settings, site="./mine.toml")]
    )
    assert cell.site == "mine.toml"  # the path could name a user
    monkeypatch.chdir("/")
    assert sites.load_site(cell.site).title == "mine"
    assert sites.register_file("generic-slurm") == "generic-slurm"


def test_the_last_of_two_files_with_one_name_counts(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(f'title = "{folder}"\n')
        name = sites.register_file(str(tmp_path / folder / "mine.toml"))
        assert sites.load_site(name).title == folder
