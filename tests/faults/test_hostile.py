"""What strangers send runs nothing: not because it is looked for, but because nothing could.

Archives are in tests/results/test_archive.py, words that end up in tables and pages in
tests/test_formats.py and tests/report, shells in tests/launchers/test_quoting.py.
"""

import ast
import pickle
import zipfile

import numpy as np
import pytest

from tests.test_architecture import MODULES, names, starts
from xfbench import adapter, environment
from xfbench.equality import jobs
from xfbench.workloads import workloads

# What runs, or may run, what a file says; what unpacks to where an archive says; names that
# somebody may take first.
RUNS = [
    *("pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml"),
    *("xml.etree.ElementTree.parse", "xml.etree.ElementTree.fromstring", "xml.dom", "xml.sax"),
    *("shutil.unpack_archive", "tempfile.mktemp", "code.interact", "runpy"),
]
CALLS = {"eval", "exec", "compile", "mktemp", "extractall", "unpack_archive"}


def dangers(module, source):
    """What of a module's text could run, or unpack, what somebody else has written."""
    tree, found = ast.parse(source), []
    found += [name for name in names(tree, module) if starts(name, RUNS)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {one.arg: ast.unparse(one.value) for one in node.keywords}
        if called in CALLS or (called.rpartition(".")[2] in CALLS - {"eval", "exec", "compile"}):
            found.append(called)
        if given.get("shell", "False") != "False":
            found.append(f"{called} with a shell")
        if called in ("np.load", "numpy.load") and given.get("allow_pickle") != "False":
            found.append(f"{called} may load a pickle")
        if called == "torch.load" and given.get("weights_only") != "True":
            found.append(f"{called} may load a pickle")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_no_module_can_run_what_a_file_says(module):
    assert dangers(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from yaml import load",
        "import numpy as np\nnp.load(f)",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "import torch\ntorch.load(f)",
        "import subprocess\nsubprocess.run(x, shell=True)",
        "import subprocess\nsubprocess.run(x, shell=y)",
        "eval(text)",
        "exec(text)",
        "import tarfile\ntarfile.open(x).extractall()",
        "import tempfile\ntempfile.mktemp()",
        "from xml.etree import ElementTree as ET\nET.fromstring(text)",
    ],
)
def test_each_of_these_is_seen(source):
    assert dangers("xfbench.runner", source)


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def arrays(folder, name="case:loss", **members):
    with zipfile.ZipFile(folder / "found.npz", "w") as archive:
        for member, content in {**members}.items():
            archive.writestr(f"{name}{member}.npy", content)


def header(text, content=b""):
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + content


def test_arrays_with_anything_in_them_are_no_results_and_run_nothing(cell, tmp_path):
    evil = tmp_path / "evil"
    object_array = header(
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        pickle.dumps(np.array([Evil(evil)], dtype=object), protocol=2),
    )
    request = cell().request(1)
    reply = {"status": "ok", "reason": None, "unsupported": {}, "observed": None}
    documents = [{"name": "case"}]
    contents = [
        object_array,
        pickle.dumps(Evil(evil)),
        b"",
        b"\x93NUMPY\x01\x00",
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }"),
        header("__import__('os').system('touch evil')"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }", b"1234"),
    ]
    for content in contents:
        arrays(tmp_path, s=content)
        with pytest.raises(jobs.CheckError) as told:
            jobs.results(documents, request, reply, tmp_path)
        assert "cannot be read" in str(told.value)
    for content in (b"", b"PK\x03\x04" + b"x" * 100, pickle.dumps(Evil(evil)), b"\0" * 100):
        (tmp_path / "found.npz").write_bytes(content)
        with pytest.raises(jobs.CheckError):
            jobs.results(documents, request, reply, tmp_path)
    (tmp_path / "found.npz").unlink()
    with pytest.raises(jobs.CheckError):
        jobs.results(documents, request, reply, tmp_path)
    assert not evil.exists()


def test_a_worker_that_lies_about_its_cases_is_no_proof_and_no_defect_of_ours(
    own_adapter, tmp_path, cell
):
    """Its reply is as the protocol wants it, its arrays are garbage."""
    own_adapter(
        "odd",
        "from xfbench.worker import check\n"
        "def check_(cases, options, build, group, inputs, output):\n"
        "    output.write_bytes(b'PK garbage')\n"
        "    return {'unsupported': {}, 'observed': None}\n"
        "check.check = check_\n"
        "def build(*_): pass\n",
    )
    described = adapter.load("odd")
    request = cell(framework="odd", kernel="plain").request(1)
    with pytest.raises(jobs.CheckError, match="cannot be read"):
        jobs.check(
            [{"name": "case"}],
            request,
            workloads()["lenet"],
            described,
            environment.ensure(described),
            time_limit=30.0,
        )
