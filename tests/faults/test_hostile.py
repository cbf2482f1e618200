"""Untrusted input cannot execute code or redirect writes.

Archives are in tests/exchange/test_archive.py, text in tables and pages in tests/rendering, and
shell quoting in tests/launchers/test_quoting.py.
"""

import ast
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from tests import peak_memory
from tests.product_modules import MODULES, find_names, has_prefix
from xfbench.base.errors import UsageError
from xfbench.environments import environment
from xfbench.equality import array_files, jobs
from xfbench.model import adapter
from xfbench.studies import media
from xfbench.worker import checkpoint
from xfbench.workloads import workloads

# These can execute file contents, unpack to paths from an archive, or use predictable names.
UNSAFE_MODULES = [
    *("pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml"),
    *("xml.etree.ElementTree.parse", "xml.etree.ElementTree.fromstring", "xml.dom", "xml.sax"),
    *("shutil.unpack_archive", "tempfile.mktemp", "code.interact", "runpy"),
]
UNSAFE_CALLS = {"eval", "exec", "compile", "mktemp", "extractall", "unpack_archive"}


def find_dangers(module, source):
    """Return the calls and imports of a module that could execute or unpack untrusted data."""
    tree, dangers = ast.parse(source), []
    dangers += [name for name in find_names(tree, module) if has_prefix(name, UNSAFE_MODULES)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if function in UNSAFE_CALLS or (
            function.rpartition(".")[2] in UNSAFE_CALLS - {"eval", "exec", "compile"}
        ):
            dangers.append(function)
        if keywords.get("shell", "False") != "False":
            dangers.append(f"{function} with a shell")
        if function in ("np.load", "numpy.load") and keywords.get("allow_pickle") != "False":
            dangers.append(f"{function} may load a pickle")
        if function == "torch.load" and keywords.get("weights_only") != "True":
            dangers.append(f"{function} may load a pickle")
    return dangers


@pytest.mark.parametrize("module", MODULES)
def test_no_module_executes_file_contents(module):
    assert find_dangers(module, MODULES[module].read_text()) == []


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
def test_danger_scan_reports_each_dangerous_call(source):
    assert find_dangers("xfbench.execution.launch", source)


class Evil:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def write_arrays(folder, name="case:loss", **members):
    with zipfile.ZipFile(folder / "found.npz", "w") as archive:
        for member, content in {**members}.items():
            archive.writestr(f"{name}{member}.npy", content)


def build_header(text, content=b""):
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + content


@pytest.mark.parametrize("planted", ["link", "folder", "file"])
def test_checkpoint_is_not_written_to_an_existing_folder(tmp_path, planted):
    """Another user creates the name in a shared scratch folder just before xfbench does."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").write_text("kept")
    path = tmp_path / "xfbench-1"

    def take_place(folder):  # runs after the old folder is removed, before the new one is made
        usage = shutil.disk_usage(folder)
        if planted == "link":
            path.symlink_to(tmp_path / "theirs")
        elif planted == "folder":
            path.mkdir()
        else:
            path.write_text("")
        return usage

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            checkpoint, "shutil", SimpleNamespace(rmtree=shutil.rmtree, disk_usage=take_place)
        )
        entered = []
        with (
            pytest.raises(FileExistsError),
            checkpoint.temporary_checkpoint_folder(path, 1) as folder,
        ):
            entered.append(folder)
    assert entered == []
    assert [file.name for file in (tmp_path / "theirs").iterdir()] == ["kept"]


def test_checkpoint_folder_is_private(tmp_path):
    with checkpoint.temporary_checkpoint_folder(tmp_path / "xfbench-1", 1) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["world-writable", "of another user"])
def test_study_data_from_a_shared_folder_are_refused(open_folder, planted):
    """The data folder has a predictable name in a memory file system that all users can write."""
    data_folder = open_folder / "xfbench-studies" / "digits-raw"
    data_folder.mkdir(parents=True)
    (data_folder / "manifest.json").write_text("{}")
    if planted == "world-writable":
        data_folder.parent.chmod(0o777)
        with pytest.raises(UsageError, match="is writable by all users"):
            media._make_data_set(data_folder, "digits", "raw")
        return
    if os.geteuid() != 0:
        pytest.skip("changing owner and user needs root")
    os.chown(data_folder.parent, 65533, -1)
    script = (
        "import os, pathlib\n"
        "from xfbench.studies import media\n"
        "os.seteuid(65534)\n"
        f"media._make_data_set(pathlib.Path({str(data_folder)!r}), 'digits', 'raw')\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "belongs to another user" in completed.stderr.splitlines()[-1]


def test_malicious_arrays_are_refused_and_execute_nothing(cell, tmp_path):
    evil = tmp_path / "evil"
    object_array = build_header(
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
        build_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"),
        build_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }"),
        build_header("__import__('os').system('touch evil')"),
        build_header("{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }", b"1234"),
    ]
    for content in contents:
        write_arrays(tmp_path, s=content)
        with pytest.raises(jobs.CheckError) as raised:
            jobs.read_results(documents, request, reply, tmp_path)
        assert "cannot read its results" in str(raised.value)
    for content in (b"", b"PK\x03\x04" + b"x" * 100, pickle.dumps(Evil(evil)), b"\0" * 100):
        (tmp_path / "found.npz").write_bytes(content)
        with pytest.raises(jobs.CheckError):
            jobs.read_results(documents, request, reply, tmp_path)
    (tmp_path / "found.npz").unlink()
    with pytest.raises(jobs.CheckError):
        jobs.read_results(documents, request, reply, tmp_path)
    assert not evil.exists()


def write_compressed(path):
    np.savez_compressed(path, **{"case:gradient": np.zeros(2**22)})


def write_twice(path):
    with zipfile.ZipFile(path, "w") as archive:
        for _ in range(2):
            archive.writestr("case:gradient.npy", build_header(FOUR_NUMBERS, bytes(32)))


def write_longer(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("case:gradient.npy", build_header(FOUR_NUMBERS, bytes(40)))


def write_texts(path):
    np.savez(path, **{"case:gradient": np.asarray(["text"])})


def write_endless(path):
    with path.open("wb") as file:
        file.truncate(array_files.MAX_ARRAY_FILE_BYTES + 1)


def write_link(path):
    np.savez(path.with_name("elsewhere.npz"), **{"case:gradient": np.zeros(4)})
    path.symlink_to("elsewhere.npz")


def write_overlapping(path):
    """Many entries of the directory name the same bytes: a bomb without compression."""
    write_longer(path)
    content = path.read_bytes()
    start = content.index(b"PK\x01\x02")
    entry, end = content[start : content.index(b"PK\x05\x06")], content[-22:]
    entries = [entry.replace(b"case:gradient", b"case:%08d" % n) for n in range(1000)]
    end = end[:8] + struct.pack("<HHL", 1000, 1000, 1000 * len(entry)) + end[16:]
    path.write_bytes(content[:start] + b"".join(entries) + end)


FOUR_NUMBERS = "{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }"
FOUND = {
    "a pipe": (os.mkfifo, "is not a plain file"),
    "a link": (write_link, "is a symbolic link"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
    "a bomb": (write_compressed, "is compressed"),
    "two of a name": (write_twice, "two arrays of the same name"),
    "overlapping": (write_overlapping, "overlap"),
    "another size": (write_longer, "is not an array of numbers of the size"),
    "texts": (write_texts, "is not an array of numbers of the size"),
    "too large": (write_endless, "is longer than 8 GiB"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", FOUND)
def test_arrays_that_block_or_expand_are_refused(cell, tmp_path, name):
    """The file `found.npz` of a bundle that came back."""
    write, reason = FOUND[name]
    write(tmp_path / "found.npz")
    reply = {"status": "ok", "reason": None, "unsupported": {}, "observed": None}
    with peak_memory.expect_less_than(2**23), pytest.raises(jobs.CheckError, match=reason):
        jobs.read_results([{"name": "case"}], cell().request(1), reply, tmp_path)


def test_arrays_of_all_ranks_have_a_limit_together(cell, tmp_path):
    """Each file is within the limit of one file. They have holes."""
    request = cell().request(1)
    request = request.model_copy(update={"ranks": 3})
    for name in ("found.npz", "found.1.npz", "found.2.npz"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 3 * 2**30)
    reply = {"status": "ok", "reason": None, "unsupported": {}, "observed": None}
    with pytest.raises(jobs.CheckError, match="all ranks are longer than 8 GiB together"):
        jobs.read_results([{"name": "case"}], request, reply, tmp_path, 2**33)


def test_forged_check_results_are_refused(fake_adapter, tmp_path, cell):
    """The worker's reply follows the protocol, but its arrays are garbage."""
    fake_adapter(
        """
        from xfbench.worker import check
        def check_(cases, options, build, group, inputs, output):
            output.write_bytes(b'PK garbage')
            return {'unsupported': {}, 'observed': None}
        check.run_cases = check_
        """
    )
    described = adapter.load("odd")
    request = cell(framework="odd", kernel="plain").request(1)
    with pytest.raises(jobs.CheckError, match="cannot read its results"):
        jobs.run_cases(
            [{"name": "case"}],
            request,
            workloads()["lenet"],
            described,
            environment.ensure_environment(described),
            time_limit=30.0,
        )
