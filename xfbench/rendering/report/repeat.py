"""The command that repeats a row's launches.

The command sets every option whose default may differ on another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from xfbench.model import settings
from xfbench.model.record import Record
from xfbench.model.request import Request
from xfbench.model.settings import Setting
from xfbench.model.strategy import format_options

# These follow from the records of a row.
_REPETITION = ("launches", "until_precision", "until_ranked", "seed")
_REPETITION_OPTIONS = ("--launches", "--until-precision", "--until-ranked")
SLURM_NOTE = (
    "Records keep no partition, account and time limit: add --partition, --account and --job-time "
    "if they differ from those of the site file."
)
# A name or value that needs no quotes in any shell.
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9/.][A-Za-z0-9_.,:=+@%/-]{0,199}")


def repeat_command_display_parts(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the parts of the command that repeats a row, such as ("xfbench run", "--threads 2").

    Return an empty tuple in any of these cases:

    - There are no records.
    - A record was not measured by xfbench.
    - The row is a probe: its launches tested a feature instead of measuring training.
    - A value would need quotes in a shell.
    - The site has a folder. No launch stores one, and the command would read the file there.
    """
    if not records or any(record.source != "measured" or not record.request for record in records):
        return ()
    last_record = records[-1]
    assert last_record.request is not None
    if last_record.request.probe:
        return ()
    options = given_options(records)
    values = [str(value) for value in options.values() if value is not True]
    if not all(map(needs_no_quotes, values)) or _names_a_site_elsewhere(last_record.request):
        return ()
    return (
        "xfbench run",
        *(name if value is True else f"{name} {value}" for name, value in options.items()),
    )


def needs_no_quotes(value: str) -> bool:
    """Return whether a value is the same word in every shell without quotes."""
    return _NEEDS_NO_QUOTES.fullmatch(value) is not None


def _names_a_site_elsewhere(request: Request) -> bool:
    return request.site is not None and "/" in request.site


def given_options(records: Sequence[Record]) -> dict[str, object]:
    """Return the options of the command that repeats a row, with their values.

    A value is True for a switch. The last of the records must have a request.
    """
    request = records[-1].request
    assert request is not None
    seeds = sorted({record.request.seed for record in records if record.request})
    options = setting_options(request)
    options["--seed"] = ",".join(map(str, seeds)) if seeds != [0] else None
    options |= _launches_or_precision_option(records)
    if request.site:  # another launcher or pinning may be the site's default
        options |= {"--launcher": request.launcher, "--pinning": request.affinity}
    return {name: value for name, value in options.items() if value is not None}


def stored_options(record: Record) -> dict[str, object]:
    """Return every option of `xfbench run` whose value the record has, defaults included.

    A value is True for a switch. Options that depend on the other records of a row are left out.
    """
    request = record.request
    assert request is not None
    options = setting_options(request)
    for setting in settings.SETTINGS:
        stored = getattr(request, setting.cell_field, None)
        is_given = options.get(setting.option) is not None or setting.name in _REPETITION
        if not is_given and not setting.is_switch and stored is not None:
            options[setting.option] = setting.format_stored(stored)
    return {name: value for name, value in options.items() if value is not None}


def describe_missing_options(records: Iterable[Record]) -> Iterator[str]:
    """Yield a sentence for each kind of option that a command may need and records do not have."""
    records = list(records)
    if has_user_chosen_python(records):
        yield "The run used an interpreter that the user chose: add --python FRAMEWORK=PATH."
    if any(record.request and record.request.launcher == "slurm" for record in records):
        yield SLURM_NOTE
    sites = {record.request.site or "" for record in records if record.request}
    if files := sorted(name for name in sites if name.endswith(".toml")):
        names = ", ".join(files)
        yield f"The command reads {names}, which is not in the records: hand it over too."


def profile_command_display_parts(repeat_command: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of the command that makes one more launch of a row, with a profile.

    `repeat_command` has the parts of the command that repeats the row. If it is empty, return an
    empty tuple.
    """
    if not repeat_command:
        return ()
    kept = [part for part in repeat_command if part.split()[0] not in _REPETITION_OPTIONS]
    return (*kept, "--launches 1", "--profile")


def example_profile_command(workload: str) -> tuple[str, ...]:
    """Return the parts of a command that profiles two frameworks.

    They train `workload`, or LeNet if that name would need quotes in a shell.
    """
    name = workload if needs_no_quotes(workload) else "lenet"
    options = ("--framework torch,mxnet", f"--workload {name}", "--launches 1", "--profile")
    return ("xfbench run", *options)


def setting_options(request: Request) -> dict[str, object]:
    """Return the options of `xfbench run` that repeat the request, with their values.

    A value is None if the command can leave the option out, and True for a switch.
    """
    special = _special_values(request)
    options: dict[str, object] = {}
    for setting in settings.SETTINGS:
        if setting.name in _REPETITION:
            continue
        stored = special.get(setting.name, getattr(request, setting.cell_field, None))
        if setting.name not in special and stored in (None, _stored_default(setting)):
            stored = None
        is_given = stored is not None
        options[setting.option] = (
            None if not is_given else True if setting.is_switch else setting.format_stored(stored)
        )
    options["--revisions"] = request.revision
    return options


def _stored_default(setting: Setting) -> object:
    """Return what a request stores if the setting is not given."""
    if setting.is_list and setting.default:
        return setting.to_stored(setting.default[0])
    return setting.default


def _special_values(request: Request) -> dict[str, object]:
    """Return the values that the command needs even if they are the defaults, and derived values.

    None: the option is left out.
    """
    several = request.ranks > 1
    options_text = format_options(request.strategy_options).replace(" ", ",")
    return {
        "kernel": request.kernel,
        "warmup": request.warmup,
        "batch_size": request.fixed_batch_size,
        # `data prepare` gives a prepared set this name, unless the user chose another.
        "data": f"{request.data}-{request.data_set.format}" if request.data_set else request.data,
        "sync_every": request.window if request.window > 1 or request.device != "cpu" else None,
        "strategy": request.strategy if several else None,
        "strategy_options": options_text or None if several else None,
        "pinning": request.affinity if several or request.affinity != "none" else None,
        "site": _site_option(request.site),
        "launcher": request.launcher if request.launcher != "local" else None,
        "profile": None,  # it changes no measurement
    }


def _site_option(site: str | None) -> str | None:
    """Return what `--site` needs. A record has only the name of a site's file, not its folder."""
    return f"./{site}" if site and site.endswith(".toml") and "/" not in site else site


def _launches_or_precision_option(records: Sequence[Record]) -> dict[str, object]:
    """Return the option that sets how often the cell is launched, with its value.

    The last record's protocol decides the option. If the record has no protocol, the option is
    `--launches` with the number of records.
    """
    protocol = records[-1].protocol
    if protocol is None:
        return {"--launches": len(records)}
    if protocol.precision is None:
        return {"--launches": protocol.most}
    precision_option = {"--until-precision": f"{100 * protocol.precision:g}%"}
    return precision_option | ({"--until-ranked": True} if protocol.ranked else {})


def has_user_chosen_python(records: Sequence[Record]) -> bool:
    """Return whether the user chose the interpreter, so that the command needs `--python`."""
    return any(record.request and record.request.environment == "python" for record in records)
