"""Modules that work in shared folders open files only through `xfbench.base.shared_files`.

Results, the cache and data sets may lie in folders to which other users write. The rule reads the
syntax trees of all modules that work there.
"""

import ast

import pytest

from tests.product_modules import MODULES

PACKAGES = (
    *("base", "model", "store", "datasets", "environments", "execution", "equality", "bundle"),
    *("session", "progress", "tuning", "studies", "planning", "exchange"),
)
# Names of functions and methods that open, create, copy or link a file by its path.
FORBIDDEN = {
    *("open", "write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "link", "symlink"),
    *("copy", "copy2", "copyfile", "copytree", "memmap", "fromfile", "tofile"),
}
FORBIDDEN_CALLS = {"np.load", "numpy.load", "np.save", "numpy.save", "io.FileIO", "os.mknod"}
# The exceptions, each with its reason.
ALLOWED = {
    ("xfbench.base.shared_files", "os.open"): "the one place",
    ("xfbench.datasets.resumed", "os.open"): "a folder, to sync it",
    ("xfbench.store.pack", "os.open"): "a folder, to sync it",
    ("xfbench.datasets.lmdb", "lmdb.open"): "in a folder that was checked",
    ("xfbench.datasets.encoding", "PIL.Image.open"): "of bytes",
    ("xfbench.datasets.preparing", "Image.open"): "of bytes",
    ("xfbench.datasets.sources", "Image.open"): "of bytes",
    ("xfbench.datasets.photographs", "Image.open"): "a file of the package",
    ("xfbench.base.name_hashes", "os.link"): "a draft that was just made",
    ("xfbench.base.tar_files", "tarfile.open"): "of an open file",
    ("xfbench.exchange.archive", "tarfile.open"): "of an open file",
    ("xfbench.equality.array_files", "archive.open"): "a member of an open archive",
    ("xfbench.equality.plants", "shutil.copytree"): "to a new temporary folder",
    ("xfbench.execution.job", "target.hardlink_to"): "a worker of the cache, to a new folder",
    ("xfbench.store.merging", "os.link"): "a copy that was just made",
}


def find_bare_access(source):
    """Return the calls that open, create, copy or link a file by its path, with their lines."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        (call.lineno, name)
        for call in calls
        if (name := ast.unparse(call.func)) in FORBIDDEN_CALLS
        or (name.rpartition(".")[2] in FORBIDDEN and not is_copy_of_a_value(call))
    ]


def is_copy_of_a_value(call):
    """Return whether it is a call such as `values.copy()`, which copies no file."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "copy"
    return is_method and not call.args and not call.keywords


SHARED = [module for module in MODULES if (*module.split("."), "")[1] in PACKAGES]


@pytest.mark.parametrize("module", SHARED)
def test_module_opens_files_only_through_shared_files(module):
    calls = find_bare_access(MODULES[module].read_text())
    assert [call for call in calls if (module, call[1]) not in ALLOWED] == []


def test_every_exception_is_needed():
    calls = {
        (module, name)
        for module in SHARED
        for _, name in find_bare_access(MODULES[module].read_text())
    }
    assert set(ALLOWED) <= calls


@pytest.mark.parametrize(
    "source",
    [
        "open(path, 'w')",
        "path.open('ab')",
        "(folder / 'README').write_text(text)",
        "path.write_bytes(content)",
        "io.open(path)",
        "os.open(path, os.O_RDWR)",
        "shutil.copy2(source, target)",
        "shutil.copyfile(source, target)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "target.hardlink_to(source)",
        "os.link(source, target)",
        "path.touch()",
        "def f():\n    with path.open() as file: pass",
    ],
)
def test_bare_access_is_reported(source):
    assert len(find_bare_access(source)) == 1


@pytest.mark.parametrize("source", ["open_file(path, 'rb')", "values.copy()", "adapter.load(name)"])
def test_other_calls_are_accepted(source):
    assert find_bare_access(source) == []
