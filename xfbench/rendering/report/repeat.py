"""The command that repeats a row's launches.

The command sets every option whose default may differ on another machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xfbench.model.record import Record
from xfbench.model.request import Request
from xfbench.model.strategy import format_options

# A name or value that needs no quotes in any shell.
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:=+@%/-]{0,199}")


def repeat_command_display_parts(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the parts of the command that repeats a row, such as ("xfbench run", "--threads 2").

    Return an empty tuple in any of these cases:

    - There are no records.
    - A record was not measured by xfbench.
    - The row is a probe: its launches tested a feature instead of measuring training.
    - A value would need quotes in a shell.
    """
    if not records or any(record.source != "measured" or not record.request for record in records):
        return ()
    last_record = records[-1]
    assert last_record.request is not None
    if last_record.request.probe:
        return ()
    seeds = sorted({record.request.seed for record in records if record.request})
    options = _setting_options(last_record.request)
    options["--seed"] = ",".join(map(str, seeds)) if seeds != [0] else None
    options |= _launches_or_precision_option(records)
    texts = {name: str(value) for name, value in options.items() if value is not None}
    if not all(map(_NEEDS_NO_QUOTES.fullmatch, texts.values())):
        return ()
    return ("xfbench run", *(f"{name} {value}" for name, value in texts.items()))


def _setting_options(request: Request) -> dict[str, object]:
    """Return the options of `xfbench run` that repeat the request, with their values.

    A value is None if the command can leave the option out.
    """
    options: dict[str, object] = {
        "--workload": request.workload,
        "--framework": request.framework,
        "--device": request.device if request.device != "cpu" else None,
        "--precision": request.precision if request.precision != "float32" else None,
        "--kernel": request.kernel,
        "--threads": request.threads,
        "--batch-size": request.fixed_batch_size,
        # `data prepare` gives a prepared set this name, unless the user chose another.
        "--data": f"{request.data}-{request.data_set.format}" if request.data_set else request.data,
        "--page-cache": request.page_cache,
        "--input": request.input,
        "--input-threads": request.input_threads,
        "--steps": request.steps,
        "--epochs": request.epochs,
        "--warmup": request.warmup,
        "--window": request.window if request.window > 1 or request.device != "cpu" else None,
        "--checkpoints": request.checkpoints or None,
        "--lars": request.lars,
        "--learning-rate": request.learning_rate,
        "--rate-scaling": request.rate_scaling,
        "--rate-warmup": request.rate_warmup,
        "--memory-limit": request.memory_limit,
        "--allocator": request.allocator,
    }
    if request.ranks > 1:
        options |= {"--ranks": request.ranks, "--strategy": request.strategy}
        options["--strategy-options"] = (
            format_options(request.strategy_options).replace(" ", ",") or None
        )
    return options | {
        "--nodes": request.nodes if request.nodes > 1 else None,
        "--scaling": request.scaling,
        "--affinity": request.affinity if request.ranks > 1 or request.affinity != "none" else None,
        "--launcher": request.launcher if request.launcher != "local" else None,
        "--site": request.site,
    }


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
    return {"--until-precision": f"{100 * protocol.precision:g}%"}


def has_user_chosen_python(records: Sequence[Record]) -> bool:
    """Return whether the user chose the interpreter, so that the command needs `--python`."""
    return any(record.request and record.request.environment == "python" for record in records)
