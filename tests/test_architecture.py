"""Check import rules and style rules on the syntax trees of all modules.

Imports inside functions count. For each rule a test shows that it finds violations.
"""

import ast
import re
import sys
import tomllib

import pytest

from tests.product_modules import MODULES, ROOT, find_imports, find_names, has_prefix

ADAPTER_SETTINGS = {
    file.parent.name: tomllib.loads(file.read_text())
    for file in ROOT.glob("adapters/*/adapter.toml")
}
FRAMEWORK_MODULES = {name: settings["module"] for name, settings in ADAPTER_SETTINGS.items()}
REUSED_ADAPTERS = {name: settings.get("reuses", []) for name, settings in ADAPTER_SETTINGS.items()}
FRAMEWORKS = {*FRAMEWORK_MODULES.values()} - {"numpy"}
WORKER_SIDE = ("worker", "workloads", "adapters")
# A module imports only from its own layer and earlier ones. "" is the package itself.
LAYERS = (
    *("workloads", "worker", "adapters", "base", "model", "statistics"),
    *("block_model", "pairwise", "stop_rule", "launchers", "host"),
    *("environments", "datasets", "store", "planning", "execution", "equality"),
    *("bundle", "session", "progress", "analysis", "rendering", "exchange", "studies", "tuning"),
    *("api", "running", "benchmarks", "pytest_plugin", "cli", "__main__", ""),
)
STARTS_PROCESSES = [
    *("subprocess", "multiprocessing", "pty", "concurrent.futures.ProcessPoolExecutor"),
    *("os.system", "os.popen", "os.fork", "os.forkpty", "os.exec", "os.spawn", "os.posix_spawn"),
    *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "psutil.Popen"),
    "loky",
]
# A watcher forks its rank. The probes of core-to-core latency end with the worker that starts them.
MAY_START = {
    "xfbench.base.processes": ["subprocess"],
    "xfbench.base.parallel": ["loky"],
    "xfbench.worker.watch": ["os.fork"],
    "xfbench.worker.pingpong": ["os.fork"],
    "xfbench.worker.core_latency": ["subprocess"],
}
STOPWATCHES = ["time.perf_counter", "time.process_time", "time.thread_time", "timeit", "time.*"]
CLOCKS = [*STOPWATCHES, "time.time", "time.monotonic", "time.clock_gettime", "datetime"]
# Only `worker.loop` times training. The others measure what the machine and its storage can do.
READ_CLOCKS = (
    *("xfbench.worker.loop", "xfbench.worker.reading"),
    *("xfbench.host.roofline", "xfbench.worker.pingpong", "xfbench.worker.memory_copy"),
)
# All other messages go through `terminal_text`, which escapes control characters.
WRITE_STDERR = ("xfbench.base.terminal_text", "xfbench.cli")
# Generators of files, and the measuring process of `roofline`: they print no text of others.
PRINT_PLAINLY = (
    *("xfbench.base.terminal_text", "xfbench.host.roofline", "xfbench.model.record"),
    *("xfbench.rendering.schema_page", "xfbench.rendering.published_page"),
    "xfbench.environments.debian",
)
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "common"}
TRANSLATION_MODULES = (
    *("train", "graph", "pooling", "update", "exchange", "compiled"),
    *("checkpoint", "copies", "device", "profile", "programs", "reader", "native"),
)


every_module = pytest.mark.parametrize("module", MODULES)


def find_area(module):
    """Return which rules apply: "worker", "workloads", "adapters", "launchers" or "driver"."""
    second = (*module.split("."), "")[1]
    return second if second in (*WORKER_SIDE, "launchers") else "driver"


def find_layer(name):
    """The number in LAYERS of a module or of a name in one. Raises KeyError outside of them."""
    second = (*name.split("."), "")[1]
    is_in_package_itself = name not in MODULES and f"xfbench.{second}" not in MODULES
    is_folder = any(module.startswith(f"xfbench.{second}.") for module in MODULES)
    return LAYERS.index("" if is_in_package_itself and not is_folder else second)


def is_below(name, prefixes):
    """Return whether `name` is one of the dotted `prefixes` or below one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def is_translation(name):
    """Return whether it can be an adapter's module that imports the framework."""
    first, second, adapter, part, *_ = [*name.split("."), "", "", ""]
    is_part_of_translation = adapter == "*" or part in TRANSLATION_MODULES
    return (first, second) == ("xfbench", "adapters") and is_part_of_translation


def find_violations(module, source):
    """Return a line for each violation of the architecture rules by `source` as `module`."""
    tree, area_name, violations = ast.parse(source), find_area(module), []
    adapter_name = module.split(".")[2] if area_name == "adapters" and module.count(".") > 1 else ""
    for name in find_imports(tree, module):
        top = name.partition(".")[0]
        is_standard = top in sys.stdlib_module_names or top == "numpy"
        if area_name == "workloads":
            allowed = is_standard or is_below(name, ["xfbench.workloads"])
        elif area_name == "worker":
            allowed = is_standard or is_below(name, ["xfbench.worker", "xfbench.workloads"])
            allowed |= top == "threadpoolctl"  # one file, included in the worker archive
            allowed |= (module, top) == ("xfbench.worker.mpi", "mpi4py")
            allowed |= (module, top) == ("xfbench.worker.pictures", "PIL")
            entrances = [f"xfbench.adapters.*.{part}" for part in ("train", "reader", "native")]
            allowed |= module == "xfbench.worker.__main__" and name in entrances
        elif area_name == "adapters":
            adapters = [adapter_name, *REUSED_ADAPTERS.get(adapter_name, ())]
            allowed_prefixes = ["xfbench.worker", "xfbench.workloads"]
            allowed_prefixes += [f"xfbench.adapters.{adapter}" for adapter in adapters]
            allowed = is_below(name, allowed_prefixes) and (
                is_translation(module) or not is_translation(name)
            )
            allowed |= is_standard
            frameworks = [FRAMEWORK_MODULES.get(adapter) for adapter in adapters]
            allowed |= top in frameworks and is_translation(module)
            allowed |= (module, top) == ("xfbench.adapters.torch.reader", "lmdb")
        else:
            allowed = top not in FRAMEWORKS and not is_translation(name)
            if top == "xfbench":
                allowed &= find_layer(name) <= find_layer(module)
            if area_name == "launchers" and top == "xfbench":
                allowed_prefixes = ("base", "launchers", "model.request")
                allowed = is_below(name, [f"xfbench.{part}" for part in allowed_prefixes])
        if not allowed:
            violations.append(f"{module} ({area_name}) imports {name}")
    for name in find_names(tree, module):
        if has_prefix(name, STARTS_PROCESSES) and not is_below(name, MAY_START.get(module, ())):
            violations.append(f"{module} starts processes: {name}")
        clocks = CLOCKS if area_name in WORKER_SIDE else STOPWATCHES
        if has_prefix(name, clocks) and module not in READ_CLOCKS:
            violations.append(f"{module} reads a clock: {name}")
    if area_name in ("driver", "launchers"):
        violations += find_output_violations(tree, module)
    return violations


def find_output_violations(tree, module):
    """Return a line for each place where a module prints text that is not escaped."""
    for name in find_names(tree, module):
        is_output = name == "sys.stderr" or name.endswith("console.print")
        if is_output and module not in WRITE_STDERR:
            yield f"{module} writes to the terminal: {name}"
    if module not in PRINT_PLAINLY and prints(tree):
        yield f"{module} prints without `print_legibly`"


def prints(tree):
    """Return whether a module uses Python's own `print`, or another way to standard output."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    replaced = any(
        alias.name == "print_legibly" and alias.asname == "print"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    outputs = {"sys.stdout.write", "typer.echo", "typer.secho", "click.echo", "rich.print"}
    return bool(names & outputs) or ("print" in names and not replaced)


@every_module
def test_module_follows_the_architecture_rules(module):
    assert find_violations(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("xfbench.execution.launch", "import torch"),
        ("xfbench.cli.run", "def run():\n    from tensorflow import keras"),
        ("xfbench.execution.launch", "from jax import numpy"),
        ("xfbench.execution.launch", "from xfbench.adapters.torch import train"),
        ("xfbench.execution.launch", "from xfbench.adapters.mxnet import exchange"),
        ("xfbench.execution.launch", "from xfbench.adapters.torch import checkpoint"),
        ("xfbench.execution.launch", "def f():\n    import xfbench.adapters.caffe.train"),
        ("xfbench.execution.launch", "import importlib\nimportlib.import_module('mxnet')"),
        ("xfbench.execution.launch", "from ..adapters.torch import train"),
        ("xfbench.cli.run", "from ..adapters.torch import train"),
        ("xfbench.execution.launch", "importlib.import_module(f'xfbench.adapters.{name}')"),
        ("xfbench.execution.launch", "importlib.import_module(f'xfbench.adapters.{name}.train')"),
        ("xfbench.model.record", "from xfbench import statistics"),
        ("xfbench.analysis.scaling", "def f():\n    from xfbench import api"),
        ("xfbench.analysis.scaling", "import xfbench"),
        ("xfbench.analysis.scaling", "from xfbench import run"),
        ("xfbench.analysis.scaling", "from ..studies import answer"),
        (
            "xfbench.analysis.scaling",
            "import importlib\nimportlib.import_module(f'xfbench.{name}')",
        ),
        ("xfbench.rendering.tables", "from xfbench.exchange import archive"),
        ("xfbench.worker.loop", "import psutil"),
        ("xfbench.worker.loop", "from mpi4py import MPI"),
        ("xfbench.worker.loop", "import os\nos.fork()"),
        ("xfbench.worker.loop", "from xfbench.base import digests"),
        ("xfbench.worker.loop", "from xfbench.adapters.torch import train"),
        ("xfbench.worker.loop", "import_module(f'xfbench.adapters.{name}.train')"),
        ("xfbench.worker", "from .. import record"),
        ("xfbench.worker.input", "def f():\n    import torch"),
        ("xfbench.workloads.lenet", "import scipy"),
        ("xfbench.workloads.lenet", "from xfbench.worker import protocol"),
        ("xfbench.workloads", "def f():\n    __import__('torch')"),
        ("xfbench.adapters.torch.train", "import tensorflow"),
        ("xfbench.adapters.torch.train", "from xfbench.adapters.caffe import prototxt"),
        ("xfbench.adapters.torch.train", "import scipy"),
        ("xfbench.adapters.torch.train", "from xfbench.base import paths"),
        ("xfbench.adapters.torch.train", "from xfbench.adapters.caffe import train"),
        ("xfbench.adapters.caffe.prototxt", "import caffe"),
        ("xfbench.adapters.caffe.prototxt", "from xfbench.adapters.caffe import train"),
        ("xfbench.adapters", "import torch"),
        ("xfbench.launchers.mpi", "from xfbench.execution import launch"),
        ("xfbench.launchers.mpi", "from xfbench.model.adapter import Adapter"),
        ("xfbench.launchers.mpi", "def f():\n    import torch"),
        ("xfbench.execution.launch", "import subprocess"),
        ("xfbench.launchers.mpi", "def f():\n    from subprocess import run"),
        ("xfbench.execution.launch", "import os\nos.system('true')"),
        ("xfbench.execution.launch", "from os import execv as go\ngo('true', [])"),
        ("xfbench.worker.loop", "import os as o\no.spawnv(0, 'true', [])"),
        ("xfbench.worker.watch", "import os\nos.forkpty()"),
        ("xfbench.worker.watch", "import subprocess"),
        ("xfbench.worker.core_latency", "import os\nos.fork()"),
        ("xfbench.environments.environment", "import multiprocessing.pool"),
        ("xfbench.environments.environment", "import psutil\npsutil.Popen('true')"),
        ("xfbench.execution.launch", "from time import perf_counter"),
        ("xfbench.execution.launch", "import time\ntime.perf_counter_ns()"),
        ("xfbench.execution.launch", "from timeit import default_timer"),
        ("xfbench.worker.trace", "import time\ntime.time()"),
        ("xfbench.worker.pages", "from time import perf_counter"),
        ("xfbench.worker.page_cache", "import time\ntime.monotonic()"),
        ("xfbench.host.media", "from time import perf_counter"),
        ("xfbench.adapters.torch.train", "def f():\n    from time import monotonic"),
        ("xfbench.adapters.torch.train", "import time as t\nt.monotonic()"),
        ("xfbench.adapters.torch.train", "from time import *"),
        ("xfbench.workloads.lenet", "from datetime import datetime"),
        ("xfbench.analysis.comparison", "import sys\nprint(1, file=sys.stderr)"),
        ("xfbench.analysis.comparison", "from sys import stderr"),
        ("xfbench.progress", "console.print('[/x]')"),
        ("xfbench.cli.data", "print('x')"),
        ("xfbench.cli.data", "def f():\n    return map(print, 'x')"),
        ("xfbench.cli.data", "import typer\ntyper.echo('x')"),
        ("xfbench.analysis.comparison", "import sys\nsys.stdout.write('x')"),
        ("xfbench.execution.job_queue", "told(console.print)"),
    ],
)
def test_architecture_check_refuses_a_violation(module, source):
    assert find_violations(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("xfbench.base.processes", "import subprocess, os\nos.killpg(1, 2)"),
        ("xfbench.worker.loop", "from time import perf_counter\nperf_counter()"),
        ("xfbench.worker.reading", "from time import perf_counter\nperf_counter()"),
        ("xfbench.worker.__main__", "import_module(f'xfbench.adapters.{name}.train')"),
        ("xfbench.worker.mpi", "from mpi4py import MPI"),
        ("xfbench.worker.watch", "import os\nos.fork()"),
        ("xfbench.worker.core_latency", "import subprocess\nsubprocess.Popen([])"),
        ("xfbench.environments.environment", "import time\ntime.monotonic()"),
        ("xfbench.model.record", "from xfbench.workloads import Workload\nfrom . import gpus"),
        ("xfbench.rendering.tables", "from xfbench.analysis.leaderboard import Table"),
        ("xfbench.worker", "from . import loop"),
        ("xfbench.worker.loop", "from .protocol import Options\nimport numpy.linalg"),
        ("xfbench.workloads.lenet", "from xfbench.workloads.layers import ReLU"),
        ("xfbench.adapters.torch.train", "import torch.nn\nfrom xfbench.worker import protocol"),
        ("xfbench.adapters.mxnet.train", "from xfbench.adapters.mxnet import exchange"),
        ("xfbench.adapters.mxnet.exchange", "import mxnet"),
        ("xfbench.adapters.torch.checkpoint", "import torch"),
        ("xfbench.cli.workload", "from xfbench.adapters.caffe import prototxt"),
        (
            "xfbench.launchers.mpi",
            "from xfbench.base import processes\nfrom xfbench.model.request import Cell",
        ),
        (
            "xfbench.execution.job",
            "from xfbench.model import adapter\nfrom xfbench.launchers import mpi",
        ),
        ("xfbench.worker.trace", "started = options.time.time"),
        (
            "xfbench.cli.data",
            "from xfbench.base.terminal_text import print_legibly as print\nprint('x')",
        ),
        ("xfbench.worker.trace", "import sys\nprint(1, file=sys.stderr)"),
    ],
)
def test_architecture_check_accepts_allowed_code(module, source):
    assert find_violations(module, source) == []


def test_every_module_has_a_layer_and_every_layer_a_module():
    layers = [find_layer(module) for module in MODULES]
    assert sorted(set(layers)) == list(range(len(LAYERS)))


@pytest.mark.parametrize("number", range(len(LAYERS) - 1))
def test_no_layer_imports_a_later_one(number):
    modules = {find_layer(module): module for module in MODULES}
    source = f"def f():\n    from {modules[number + 1]} import anything"
    [violation] = find_violations(modules[number], source)
    assert "imports" in violation


def test_name_scan_sees_real_clocks_processes_and_imports():
    for module, expected in (
        ("xfbench.worker.loop", "time.perf_counter"),
        ("xfbench.worker.reading", "time.perf_counter"),
        ("xfbench.base.processes", "subprocess.Popen"),
        ("xfbench.worker.__main__", "xfbench.adapters.*.train"),
    ):
        assert expected in set(find_names(ast.parse(MODULES[module].read_text()), module))


def test_module_list_covers_every_folder_and_adapter():
    for module in ("xfbench.pytest_plugin", "xfbench.execution.launch", "xfbench.worker.loop"):
        assert module in MODULES
    for adapter in FRAMEWORK_MODULES:
        assert f"xfbench.adapters.{adapter}.train" in MODULES
    assert {find_area(module) for module in MODULES} == {"driver", "launchers", *WORKER_SIDE}


def find_style_defects(module, source):
    """Return a line for each violation of the style rules in a module's source."""
    defects = []
    if source.strip() and not ast.get_docstring(ast.parse(source)):
        defects.append("the module has no docstring")
    if forbidden := FORBIDDEN_NAMES & {
        word for part in module.split(".") for word in part.split("_")
    }:
        defects.append(f"a module is called {forbidden.pop()}")
    if find_area(module) in WORKER_SIDE:
        try:
            tree = ast.parse(source, feature_version=(3, 8))
        except SyntaxError as error:
            defects.append(f"Python 3.8 cannot parse it: {error}")
        else:
            if has_annotations(tree) and "__future__.annotations" not in find_imports(tree, module):
                defects.append("it has annotations that Python 3.8 would evaluate")
    return defects


def has_annotations(tree):
    """Return whether the tree has annotations."""
    return any(
        isinstance(node, ast.AnnAssign)
        or getattr(node, "returns", None)
        or getattr(node, "annotation", None)
        for node in ast.walk(tree)
    )


@every_module
def test_module_follows_the_style_rules(module):
    assert find_style_defects(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    ("module", "source", "word"),
    [
        ("xfbench.execution.launch", "x = 1", "docstring"),
        ("xfbench.utils", '"""It."""', "utils"),
        ("xfbench.cli.run_helpers", '"""It."""', "helpers"),
        ("xfbench.common.run", '"""It."""', "common"),
        ("xfbench.worker.loop", '"""It."""\nmatch 1:\n    case 1: pass', "3.8"),
        ("xfbench.adapters.torch.train", '"""It."""\nwith (open(a) as b, c): pass', "3.8"),
        ("xfbench.workloads.lenet", '"""It."""\ntry: pass\nexcept* OSError: pass', "3.8"),
        ("xfbench.worker.loop", '"""It."""\ndef f(x: int | None): pass', "annotations"),
    ],
)
def test_style_check_reports_each_violation(module, source, word):
    assert any(word in defect for defect in find_style_defects(module, source))


# Names in these files may contain any white space but the plain space and "\\n".
KERNEL_TEXT = re.compile(r"/.*(mountinfo|cgroup|maps|fdinfo)")
KERNEL_TEXT_READERS = ("xfbench.worker.mounts", "xfbench.worker.cgroup")


def find_bare_splits(module, source):
    """Return the lines that split the text of mounts, groups or mappings at any white space.

    A rule for functions with the path of such a file, and for modules that have it elsewhere.
    """
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {child for node in functions for child in ast.walk(node)}

    def is_path(node):
        return isinstance(node, ast.Constant) and bool(KERNEL_TEXT.fullmatch(str(node.value)))

    outside = any(is_path(node) for node in ast.walk(tree) if node not in inside)
    everywhere = outside or module in KERNEL_TEXT_READERS
    scopes = [tree] if everywhere else [f for f in functions if any(map(is_path, ast.walk(f)))]
    return sorted(
        {
            node.lineno
            for scope in scopes
            for node in ast.walk(scope)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (
                node.func.attr == "splitlines"
                or (node.func.attr in ("split", "rsplit") and is_any_space(node))
            )
        }
    )


def is_any_space(call):
    """Return whether a call of `split` names no separator."""
    separators = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "sep")]
    return all(isinstance(each, ast.Constant) and each.value is None for each in separators)


@every_module
def test_module_splits_texts_of_the_kernel_at_plain_spaces(module):
    assert find_bare_splits(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    ("module", "source", "lines"),
    [
        ("xfbench.worker.mounts", "a.split()", [1]),
        ("xfbench.worker.mounts", "a.split(' ', 2)\na.split(None, 2)", [2]),
        ("xfbench.worker.cgroup", "a.split('\\n')\na.splitlines()", [2]),
        ("xfbench.host.b", "F = Path('/proc/self/mountinfo')\ndef f():\n a.split()", [3]),
        ("xfbench.host.b", "def f():\n '/proc/1/maps'\n a.split()\ndef g(): a.split()", [3]),
        ("xfbench.host.b", "def f(a='/proc/self/numa_maps'):\n a.split(maxsplit=1)", [2]),
        ("xfbench.host.b", "def f():\n a.split()", []),
    ],
)
def test_split_at_any_white_space_is_reported(module, source, lines):
    assert find_bare_splits(module, source) == lines


def find_nvml_calls(source):
    """Return the lines that use a function of NVML as an attribute; the driver may lack it."""
    attributes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    return [node.lineno for node in attributes if re.match("nvml[A-Z]", node.attr)]


@every_module
def test_functions_of_nvml_are_looked_up_by_name(module):
    assert find_nvml_calls(MODULES[module].read_text()) == []


def test_nvml_function_used_as_an_attribute_is_reported():
    assert find_nvml_calls("a\nlibrary.nvmlInit_v2()\nnvml.find_function(a, 'nvmlInit')") == [2]


def find_starts_that_import_from_the_working_folder(source):
    """Return the lines that run a module with `-m`, which imports from the working folder first."""
    tree = ast.parse(source)
    commands = (node for node in ast.walk(tree) if isinstance(node, ast.List | ast.Tuple))
    words = {
        node: [each.value for each in node.elts if isinstance(each, ast.Constant)]
        for node in commands
    }
    elsewhere = {
        argument
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and any(word.arg == "cwd" for word in call.keywords)
        for argument in call.args
    }
    interpreters = ("sys.executable", "framework.interpreter")
    return [
        node.lineno
        for node, constants in words.items()
        if "-m" in constants
        and not {"-P", "-I"} & {*constants}
        and node not in elsewhere
        and any(name in ast.unparse(node) for name in interpreters)
    ]


@every_module
def test_no_module_runs_python_with_the_working_folder_on_its_path(module):
    """Somebody else may have put a `numpy.py` there."""
    assert find_starts_that_import_from_the_working_folder(MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "run([sys.executable, '-m', 'a'])",
        "run([str(framework.interpreter), '-m', module])",
        "command = [*(sys.executable, '-m', 'a'), *words]",
    ],
)
def test_python_with_the_working_folder_on_its_path_is_reported(source):
    assert find_starts_that_import_from_the_working_folder(source) == [1]
    safe = source.replace("'-m'", "'-P', '-m'")
    assert find_starts_that_import_from_the_working_folder(safe) == []


TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))


def find_imported_test_modules(source):
    """Return the imported names that are, or are in, a `test_*.py` or a `conftest.py`."""
    return [
        name
        for name in find_imports(ast.parse(source), "tests")
        if any(part == "conftest" or part.startswith("test_") for part in name.split("."))
    ]


def test_no_module_imports_a_test_module():
    """What several test modules need is in a fixture or in a module with a name of its own."""
    imported_names = {
        str(file.relative_to(ROOT)): names
        for file in TEST_FILES
        if (names := find_imported_test_modules(file.read_text()))
    }
    assert TEST_FILES and imported_names == {}


@pytest.mark.parametrize(
    "source",
    [
        "from tests.model.test_record import SOFTWARE",
        "from tests.model import test_record",
        "def f():\n    import tests.test_api",
        "from tests.cluster.conftest import wait_for",
        "import importlib\nimportlib.import_module('tests.test_api')",
    ],
)
def test_import_of_a_test_module_is_reported(source):
    assert find_imported_test_modules(source)


def test_import_of_a_module_beside_the_tests_is_accepted():
    assert find_imported_test_modules("from tests.sample_records import SOFTWARE") == []


READS_OUTPUT = ("output", "processes.output", "_git", "_run_bash", "run_apt")


def find_place_reads(source):
    """Return the lines that take a line of a program's output for its place."""
    tree = ast.parse(source)
    printed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(part, ast.Call) and ast.unparse(part.func) in READS_OUTPUT
            for part in ast.walk(node.value)
        ):
            printed |= {ast.unparse(target) for target in node.targets}
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            called = node.value
            if not isinstance(called, ast.Call) or not isinstance(called.func, ast.Attribute):
                continue
            parts = {ast.unparse(part) for part in ast.walk(called.func.value)}
            is_printed = parts & {*printed, *READS_OUTPUT}
            if called.func.attr in ("splitlines", "split", "partition") and is_printed:
                lines.append(node.lineno)
    return lines


@every_module
def test_no_line_of_a_program_is_taken_for_its_place(module):
    """Sites print banners around answers: `base.tool_output` finds the answer by its form."""
    assert find_place_reads(MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "text = output(['a'])\nfirst = text.splitlines()[0]",
        "text = processes.output(['a']).strip()\nlast = text.split('\\n')[-1]",
        "number = output(['a']).strip().partition(';')[0]",
    ],
)
def test_line_taken_for_its_place_is_reported(source):
    assert find_place_reads(source)


def find_strict_decoding(source):
    """Return a line for each call that may fail at bytes of the system which are not UTF-8.

    - Text of processes, and of files whose encoding is not given, without `errors`.
    - Any text of a file without `errors`, in modules that name a path below /proc or /sys.
    """
    tree, lines = ast.parse(source), []
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    reads_system = any(str(text).startswith(("/proc", "/sys/")) for text in strings)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        given = {keyword.arg for keyword in node.keywords}
        is_process_text = bool({"text", "universal_newlines"} & given)
        is_process_text |= name in ("Popen", "run", "check_output") and "encoding" in given
        is_file_text = name == "read_text" and (reads_system or not (node.args or given))
        if (is_process_text or is_file_text) and "errors" not in given:
            lines.append(ast.unparse(node))
    return lines


@every_module
def test_module_does_not_decode_system_bytes_strictly(module):
    assert find_strict_decoding(MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "Path(name).read_text()",
        "NAME = Path('/proc/self/stat')\nNAME.read_text(encoding='utf-8')",
        "(Path('/sys/class/net') / name).read_text('ascii')",
        "subprocess.run(command, text=True)",
        "subprocess.Popen(command, universal_newlines=True)",
        "subprocess.check_output(command, encoding='utf-8')",
    ],
)
def test_strict_decoding_of_system_bytes_is_found(source):
    assert len(find_strict_decoding(source)) == 1


def find_whole_environments(source):
    """Return the lines that use all variables of this process, not one of them by name."""
    tree = ast.parse(source)
    environments = ("os.environ", "environ")
    by_name = set()
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Attribute) and node.attr in ("get", "pop", "setdefault")
        if is_call or isinstance(node, ast.Subscript):
            by_name.add(node.value)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            by_name |= {*node.comparators}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name)
        and ast.unparse(node) in environments
        and node not in by_name
    ]


@every_module
def test_variables_of_programs_are_selected_in_one_place(module):
    """`base.process_variables` decides what a program gets; a worker reads what it was given.

    `base.private_names` looks for folders in all variables, and starts no program.
    """
    allowed = ("xfbench.base.process_variables", "xfbench.base.private_names")
    if module not in allowed and find_area(module) not in WORKER_SIDE:
        assert find_whole_environments(MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("a = {**os.environ, 'LC_ALL': 'C'}", [1]),
        ("output(b, environment=os.environ)", [1]),
        ("a = [n for n in os.environ]\nb = os.environ.copy()\nc = environ.items()", [1, 2, 3]),
        ("os.environ['A']\nos.environ.get('A')\n'A' in os.environ\nimport os", []),
    ],
)
def test_use_of_the_whole_environment_is_reported(source, lines):
    assert find_whole_environments(source) == lines
