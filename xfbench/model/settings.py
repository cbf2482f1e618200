"""The settings of a run, each declared once.

From these declarations come the options of `xfbench run` and their help, the keys of a study's
`[[matrix]]`, the signature of `xfbench.run`, the command that repeats a row, and
docs/reference/settings.md. `make settings` writes the generated files again.

To add a setting, add a `Setting` here, run `make settings`, and use it where it has its effect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from xfbench.base import quantities
from xfbench.base.errors import UsageError, unknown_name_error

Panel = Literal["What", "How long", "Parallel", "Data", "Solver", "Machine", "Output"]
PANELS: tuple[Panel, ...] = (
    *("What", "How long", "Parallel", "Data", "Solver", "Machine", "Output"),
)


@dataclass(frozen=True)
class ValueType:
    """What one value of a setting is.

    - `name`: the type in the reference page.
    - `annotation`: the type in Python.
    - `parse`: function from a typed text to a value. Raises ValueError.
    - `metavar`: what stands for a value in the help.
    """

    name: str
    annotation: str
    parse: Callable[[str], Any]
    metavar: str


NAME = ValueType("name", "str", str, "NAME")
WHOLE_NUMBER = ValueType("whole number", "int", quantities.parse_whole_number, "N")
NUMBER = ValueType("number", "float", quantities.parse_number, "X")
SHARE = ValueType("share, such as 2% or 0.02", "float", quantities.parse_share, "SHARE")
SIZE = ValueType("size in bytes, such as 512MiB or 8GB", "int", quantities.parse_size, "SIZE")
DURATION = ValueType(
    "duration, such as 90s, 10m or 1.5h; a plain number is in seconds",
    "float",
    functools.partial(quantities.parse_duration, may_be_zero=True),  # its minimum decides
    "DURATION",
)
FOLDER = ValueType("folder", "str | Path", Path, "DIR")
OPTIONS = ValueType(
    "names with values", "Mapping[str, int | str]", quantities.parse_named_values, "NAME=VALUE,..."
)
REVISION = ValueType("git revision", "str", str, "REVISION")
INTERPRETERS = ValueType("interpreters", "Mapping[str, str | Path]", str, "NAME=PATH")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of `xfbench run`.

    - `name`: as in TOML and Python. The option is `--name` with hyphens.
    - `panel`: the group in the help.
    - `help`: a noun phrase, without the choices and the default.
    - `type`: what one value is.
    - `default`: the value if the setting is not given. None: something decides it later.
    - `default_words`: what the help says about the default; empty: the default itself.
    - `is_list`: whether several values can be given, each for cells of its own.
    - `is_switch`: whether the option takes no value.
    - `minimum`, `maximum`: smallest and largest allowed number.
    - `choices`: the allowed values, and how a record stores each. Empty if planning checks names.
    - `aliases`: other words for a choice.
    - `short`: a short option, such as "-f"; empty: none.
    - `keyword`: a word that stands for a list of values; empty: none.
    - `record_name`: the field of a cell; empty: the name.
    - `is_stored`: whether a cell has a field that was generated from this declaration. False if
      `Cell` declares the field itself, or if records do not have the setting.
    - `matrix_type`: the type in TOML if it allows more than the command line.
    """

    name: str
    panel: Panel
    help: str
    type: ValueType = NAME
    default: Any = None
    default_words: str = ""
    is_list: bool = False
    is_switch: bool = False
    minimum: int | None = None
    maximum: int | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    short: str = ""
    keyword: str = ""
    record_name: str = ""
    is_stored: bool = False
    matrix_type: str = ""

    @property
    def option(self) -> str:
        """The option as typed, such as "--batch-size". A switch that is on by default turns off."""
        turns_off = self.is_switch and self.default
        return f"--{'no-' if turns_off else ''}{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """What stands for the value in the help, such as "N,..."."""
        if self.choices and not self.is_list:
            return "|".join(self.choices)
        return f"{self.type.metavar},..." if self.is_list else self.type.metavar

    @property
    def cell_field(self) -> str:
        """The name of the field in cells and records."""
        return self.record_name or self.name

    @property
    def default_text(self) -> str:
        """What the help says about the default; empty if there is nothing to say."""
        if self.default_words or self.is_switch or self.default is None:
            return self.default_words
        return self.format(self.default)

    @property
    def full_help(self) -> str:
        """The help text with choices and default."""
        # The metavar has the choices if only one can be given.
        choices = f": {', '.join(self.choices)}" if self.choices and self.is_list else ""
        default = f" (default: {self.default_text})" if self.default_text else ""
        return f"{self.help}{choices}{default}."

    def parse(self, text: str) -> Any:
        """Return the value, or the list of values, of a typed text.

        Raises UsageError that names the option.
        """
        if self.keyword and text.strip() == self.keyword:
            return self.keyword
        texts = [part.strip() for part in text.split(",")] if self.is_list else [text]
        if self.keyword and self.keyword in texts:
            raise UsageError(f"{self.option} {text}: {self.keyword} must be the only value")
        try:
            values = [self._parse_one(part) for part in texts]
        except ValueError as error:
            raise UsageError(f"{self.option} {text}: {error}") from error
        return values if self.is_list else values[0]

    def _parse_one(self, text: str) -> Any:
        if self.choices:
            text = self.aliases.get(text, text)
            if text not in self.choices:
                raise unknown_name_error(self.option, text, list(self.choices))
            return text
        value = self.type.parse(text)
        if self.minimum is not None and value < self.minimum:
            unit = " s" if self.type is DURATION else ""
            raise ValueError(f"{text!r} is less than {self.minimum}{unit}")
        self.check_maximum(value)
        return value

    def check_maximum(self, value: Any) -> None:
        """Raise UsageError if `value` is a number above `maximum`."""
        if self.maximum is not None and isinstance(value, int | float) and value > self.maximum:
            unit = " s" if self.type is DURATION else ""
            raise UsageError(f"{self.option} {value:,}: at most {self.maximum:,}{unit}")

    def format(self, value: Any) -> str:
        """Return the text that `parse` turns into this value."""
        if isinstance(value, Sequence) and not isinstance(value, str):
            return ",".join(map(self.format, value))
        return f"{100 * value:g}%" if self.type is SHARE else str(value)

    def to_stored(self, value: Any) -> Any:
        """Return what a record stores for one value; None stays None."""
        return self.choices.get(value, value)

    def format_stored(self, stored: Any) -> str:
        """Return the text of one value that a record stores."""
        for text, stored_choice in self.choices.items():
            if stored_choice == stored:
                return text
        return self.format(stored)


def _same(*names: str) -> dict[str, str]:
    """Return choices that records store as they are typed."""
    return {name: name for name in names}


_LONGEST_S = 10**7  # about four months

# In the order in which the help lists them.
SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="framework",
        panel="What",
        help="Frameworks",
        default_words="caffe,mxnet,tensorflow,torch",
        is_list=True,
        short="-f",
    ),
    Setting(
        name="workload",
        panel="What",
        help="Workloads (see `xfbench workload list`)",
        default_words="lenet,convnet",
        is_list=True,
        short="-w",
    ),
    Setting(
        name="device",
        panel="What",
        help="Devices",
        default=("cpu",),
        is_list=True,
        choices=_same("cpu", "cuda"),
        aliases={"gpu": "cuda"},
    ),
    Setting(
        name="precision",
        panel="What",
        help="Precisions",
        default=("float32",),
        is_list=True,
        choices=_same("float32", "float64", "tf32", "bfloat16", "float16"),
    ),
    Setting(
        name="kernel",
        panel="What",
        help="Kernel libraries (see `xfbench framework list`); all stands for each one of the "
        "framework",
        default=("default",),
        default_words="the framework's",
        is_list=True,
    ),
    Setting(
        name="steps",
        panel="How long",
        help="Timed steps (see --min-time)",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=10**9,
        default_words="at least 20; cuda: at least 200",
    ),
    Setting(
        name="epochs",
        panel="How long",
        help="Epochs to train, each followed by an evaluation",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=10**6,
    ),
    Setting(
        name="warmup",
        panel="How long",
        help="Untimed steps after the first step",
        type=WHOLE_NUMBER,
        minimum=0,
        maximum=10**9,
        default=3,
    ),
    Setting(
        name="min_time",
        panel="How long",
        help="Minimum duration of the timed steps, such as 5s; more than --steps are timed if "
        "these take less",
        type=DURATION,
        minimum=0,
        maximum=_LONGEST_S,
        default_words="5s; 0 if --steps or --epochs is given",
        record_name="min_seconds",
        is_stored=True,
    ),
    Setting(
        name="warmup_time",
        panel="How long",
        help="Minimum duration of the warm-up after the first step",
        type=DURATION,
        minimum=0,
        maximum=_LONGEST_S,
        default_words="1s; 0 if --steps or --epochs is given",
        record_name="min_warmup_seconds",
        is_stored=True,
    ),
    Setting(
        name="launches",
        panel="How long",
        help="Launches per cell, each in a fresh process",
        type=WHOLE_NUMBER,
        minimum=1,
        default_words="see --until-precision",
    ),
    Setting(
        name="until_precision",
        panel="How long",
        help="Relative half-width of the confidence interval to reach, such as 1%: each cell is "
        "launched 5 to 20 times",
        type=SHARE,
        default=0.02,
    ),
    Setting(
        name="until_ranked",
        panel="How long",
        help="Launch the cells of a leaderboard only until their order is known: any two differ "
        "certainly, or by less than --until-precision. Also stop if it is not likely enough that "
        "more launches tell the order",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="seed",
        panel="How long",
        help="Seeds of weights and data, such as 0,1,2; the leaderboard has one row for all seeds "
        "of a configuration",
        type=WHOLE_NUMBER,
        minimum=0,
        default=(0,),
        default_words="0",
        is_list=True,
    ),
    Setting(
        name="threads",
        panel="Parallel",
        help="Threads per rank; powers stands for 1, 2, 4 and so on up to the number of cores",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=65_536,
        default_words="an even share of the cores",
        is_list=True,
        keyword="powers",
        matrix_type='Positives | Literal["powers"]',
    ),
    Setting(
        name="ranks",
        panel="Parallel",
        help="Numbers of ranks, which are processes that train together",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=10**6,
        default=(1,),
        is_list=True,
    ),
    Setting(
        name="nodes",
        panel="Parallel",
        help="Numbers of nodes for the ranks",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=10**6,
        default=(1,),
        is_list=True,
    ),
    Setting(
        name="ranks_per_node",
        panel="Parallel",
        help="Ranks on each node, instead of --nodes. Other numbers of ranks are left out",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=65_536,
    ),
    Setting(
        name="strategy",
        panel="Parallel",
        help="Strategies to train on several ranks",
        default=("default",),
        default_words="the framework's first",
        is_list=True,
    ),
    Setting(
        name="strategy_options",
        panel="Parallel",
        help="Options of the strategy, such as servers=2,bucket_size=1MB (see "
        "docs/reference/strategies.md)",
        type=OPTIONS,
        matrix_type="dict[str, Value]",
    ),
    Setting(
        name="scaling",
        panel="Parallel",
        help="Whether --batch-size is for all ranks together (strong), for each rank (weak), or "
        "for each node and divided among its ranks (per-node)",
        choices=_same("strong", "weak", "per-node"),
    ),
    Setting(
        name="launcher",
        panel="Parallel",
        help="Launcher of the ranks",
        default_words="the site's, else local",
        choices=_same("local", "mpi", "slurm"),
        matrix_type="str",
    ),
    Setting(
        name="pinning",
        panel="Parallel",
        help="Pinning of each rank: to its own cores, a socket, a NUMA node, or none (see "
        "docs/reference/pinning.md)",
        default_words="cores if ranks of a cell share a node or the site reserves cores, else none",
        choices=_same("cores", "sockets", "numa", "none"),
        record_name="affinity",
    ),
    Setting(
        name="site",
        panel="Parallel",
        help="Site configuration: name or TOML file (see docs/reference/sites.md)",
    ),
    Setting(
        name="partition",
        panel="Parallel",
        help="Slurm partition",
        default_words="the site's",
    ),
    Setting(
        name="data",
        panel="Data",
        help="Data sets: digits, synthetic, or prepared sets by name or folder (see "
        "`xfbench data list`)",
        default_words="the workload's, but synthetic with --steps",
        is_list=True,
    ),
    Setting(
        name="page_cache",
        panel="Data",
        help="State of the page cache before each epoch of a prepared set: its files are in memory "
        "(warm) or not (cold)",
        default_words="unchanged",
        is_list=True,
        choices=_same("cold", "warm"),
        is_stored=True,
    ),
    Setting(
        name="loader",
        panel="Data",
        help="Data loader of a prepared set, xfbench's or the framework's own",
        default_words="xfbench",
        is_list=True,
        choices={"xfbench": "ours", "native": "native"},
        record_name="input",
    ),
    Setting(
        name="loader_threads",
        panel="Data",
        help="Data-loading threads; 0 loads in the training thread",
        type=WHOLE_NUMBER,
        minimum=0,
        maximum=1024,
        default_words="1",
        record_name="input_threads",
    ),
    Setting(
        name="batch_size",
        panel="Solver",
        help="Images per update",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=10**9,
        default_words="the published batch size",
        is_list=True,
        matrix_type="Batches",
    ),
    Setting(
        name="learning_rate",
        panel="Solver",
        help="Base learning rates",
        type=NUMBER,
        default_words="the workload's",
        is_list=True,
    ),
    Setting(
        name="lars",
        panel="Solver",
        help="LARS trust coefficients; 0: no LARS",
        type=NUMBER,
        default_words="no LARS",
        is_list=True,
    ),
    Setting(
        name="lr_scaling",
        panel="Solver",
        help="LR scaling, in proportion to the batch size (linear) or none",
        default_words="none",
        is_list=True,
        choices=_same("linear", "none"),
        record_name="rate_scaling",
    ),
    Setting(
        name="lr_warmup",
        panel="Solver",
        help="Learning-rate warm-up in epochs",
        type=WHOLE_NUMBER,
        minimum=0,
        maximum=10**6,
        default_words="no warm-up",
        is_list=True,
        record_name="rate_warmup",
    ),
    Setting(
        name="allocator",
        panel="Machine",
        help="Memory allocators",
        default_words="system",
        is_list=True,
        choices={"system": None, "jemalloc": "jemalloc", "tcmalloc": "tcmalloc"},
        is_stored=True,
    ),
    Setting(
        name="memory_limit",
        panel="Machine",
        help="Limit for the private memory of a rank, such as 8GB",
        type=SIZE,
        minimum=1,
        maximum=2**60,
        default_words="no limit",
        is_stored=True,
    ),
    Setting(
        name="sync_every",
        panel="Machine",
        help="Steps between synchronizations with the device",
        type=WHOLE_NUMBER,
        minimum=1,
        maximum=10**9,
        default_words="1; cuda: 10",
        record_name="window",
    ),
    Setting(
        name="checkpoints",
        panel="Output",
        help="Number of checkpoints to take during the run",
        type=WHOLE_NUMBER,
        minimum=0,
        maximum=10**6,
        default=0,
        default_words="none",
    ),
    Setting(
        name="profile",
        panel="Output",
        help="Run a few extra steps under the framework's profiler and record the time of each "
        "layer",
        is_switch=True,
        default=False,
    ),
)

# What a cell does not depend on. These are no keys of a matrix.
RUN_OPTIONS: tuple[Setting, ...] = (
    Setting(
        name="revisions",
        panel="What",
        help="Git revisions whose worker and adapters are measured in turns, such as "
        "main,working-tree (see docs/regression.md)",
        type=REVISION,
        default_words="the running xfbench",
        is_list=True,
        record_name="revision",
    ),
    Setting(
        name="tuned",
        panel="What",
        help="Use the values found by `xfbench tune` for options you don't set",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="verify",
        panel="What",
        help="Do not verify first: unverified cells are not ranked",
        is_switch=True,
        default=True,
    ),
    Setting(
        name="time_limit",
        panel="How long",
        help="Time limit of one launch, such as 90s or 2h",
        type=DURATION,
        minimum=1,
        maximum=_LONGEST_S,
        default=1800.0,
        default_words="30m",
    ),
    Setting(
        name="resume",
        panel="How long",
        help="Skip launches that are already done",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="account",
        panel="Parallel",
        help="Account to charge a Slurm job to",
        default_words="the site's",
    ),
    Setting(
        name="job_time",
        panel="Parallel",
        help="Time limit of a job submitted from a login node, such as 90m or 2h",
        type=DURATION,
        minimum=60,
        maximum=_LONGEST_S,
        default=3600.0,
        default_words="60m",
    ),
    Setting(
        name="wait",
        panel="Parallel",
        help="Submit the job and exit; to collect the records later, repeat the command with "
        "--resume",
        is_switch=True,
        default=True,
    ),
    Setting(
        name="python",
        panel="Machine",
        help="Python interpreter of a framework (repeatable)",
        type=INTERPRETERS,
    ),
    Setting(
        name="strict",
        panel="Machine",
        help="Refuse to run on a noisy machine, and mark noisy launches as invalid",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="results",
        panel="Output",
        help="Results folder",
        type=FOLDER,
        default_words="$XFBENCH_RESULTS, else ./results",
    ),
    Setting(
        name="checkpoint_dir",
        panel="Output",
        help="Directory for temporary checkpoints",
        type=FOLDER,
        default_words="in the results folder",
    ),
)
# These make sense only on a command line.
COMMAND_OPTIONS: tuple[Setting, ...] = (
    Setting(
        name="bundle",
        panel="Output",
        help="Do not run: write a self-contained bundle to this folder, to run on a machine "
        "without xfbench",
        type=FOLDER,
    ),
    Setting(
        name="dry_run",
        panel="Output",
        help="Show what the command would do, without doing it",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="show_commands",
        panel="Output",
        help="With --dry-run: also print the commands that start the launches of each cell",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="yes",
        panel="Output",
        help="Start without asking, also if the run may take more than 30 minutes",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="quiet",
        panel="Output",
        help="Print only the result and what failed",
        is_switch=True,
        default=False,
    ),
    Setting(
        name="json",
        panel="Output",
        help="Print one JSON document on standard output",
        is_switch=True,
        default=False,
    ),
)
BY_NAME: Mapping[str, Setting] = {
    setting.name: setting for setting in (*SETTINGS, *RUN_OPTIONS, *COMMAND_OPTIONS)
}


def find_record_field(name: str) -> str:
    """Return the field of a request that stores the value of an option.

    `name` is the option's name without the first dashes, such as "batch-size". If there is no such
    option, return `name`.
    """
    setting = BY_NAME.get(name.replace("-", "_"))
    if setting is None:
        return name
    return "global_batch_size" if setting.name == "batch_size" else setting.cell_field
