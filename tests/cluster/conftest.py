"""Fixtures for tests on a Slurm cluster; skipped tests state the reason."""

import pytest

from tests import debian
from tests.cluster import namespaces, slurm
from tests.cluster.commands import XFBENCH
from tests.cluster.node_description import NODES

RUN_OPTIONS = "run --framework odd --workload lenet --batch-size 4 --scaling weak"
RUN_OPTIONS += " --launches 1 --no-verify --json"


@pytest.fixture(scope="session")
def node_module(request):
    """The module that makes nodes: `namespaces` if possible, else `processes`."""
    module, description = slurm.choose_node_module()
    if module is None:
        debian.skip_test(f"no Slurm cluster: {description}")
    request.config.stash[NODES] = description
    return module


@pytest.fixture
def network(node_module, request):
    """Skip the test unless the nodes have their own network."""
    if node_module is not namespaces:
        pytest.skip(f"nodes are {request.config.stash[NODES]}")


@pytest.fixture(scope="module")
def shared_cluster(node_module):
    cluster = slurm.Cluster(node_module)
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(shared_cluster):
    """Four nodes and a login node, all idle, also after a failed test."""
    shared_cluster.clear()
    return shared_cluster


@pytest.fixture
def own_cluster(node_module):
    """A cluster of two nodes that a test may break."""
    cluster = slurm.Cluster(node_module, count=2)
    yield cluster
    cluster.end()


@pytest.fixture
def command_words(fake_adapter, tmp_path):
    """A function that returns the command of a run with the fake framework and a results folder.

    `site` are additional lines of the site file.
    """

    def make(lines="", options="", site="", **adapter):
        fake_adapter(lines, **adapter)
        site_file = tmp_path / "site.toml"
        site_file.write_text(
            f'title = "Four nodes of two cores"\nlauncher = "slurm"\ncores = 2\n{site}'
        )
        results = str(tmp_path / "my results")  # the space tests quoting
        run_options = [*RUN_OPTIONS.split(), "--site", str(site_file), *options.split()]
        return [*XFBENCH, *run_options, "--results", results]

    return make
