"""The check whether a matrix includes a request.

`experiment.expand_matrices` does the reverse: it lists all cells of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xfbench.datasets import sets
from xfbench.model import adapter, training
from xfbench.model.request import SOLVER, Request
from xfbench.planning.experiment import DEFAULT_STEPS, LOADER, WINDOWS, list_stored_values
from xfbench.planning.matrix import Matrix
from xfbench.planning.study_form import BatchSearch
from xfbench.workloads import workloads


class Catalog:
    """The current workloads and adapters.

    A catalog reads each of them only once, so use one catalog to check many requests.
    """

    def __init__(self) -> None:
        self.workloads = workloads()
        self.names = adapter.list_names()
        self.adapters: dict[str, adapter.Adapter] = {}

    def adapter(self, name: str) -> adapter.Adapter | None:
        """Return the adapter with this name, or None if there is none."""
        if name not in self.adapters and name in self.names:
            self.adapters[name] = adapter.load(name)
        return self.adapters.get(name)


def is_in_matrix(m: Matrix, r: Request, catalog: Catalog) -> bool:
    """Return whether the request `r` belongs to the matrix `m`.

    For a setting that the matrix omits, one of two rules applies:

    - If the host or the user decides the setting, such as `threads`, any value belongs to the
      matrix.
    - Otherwise, only the default value belongs to the matrix.

    Launches of a git revision or a named interpreter belong to no matrix.
    """
    if r.framework not in m.framework or r.workload not in m.workload:
        return False
    network, framework_adapter = catalog.workloads.get(r.workload), catalog.adapter(r.framework)
    if network is None:
        return False
    window = m.sync_every or WINDOWS.get(r.device, 1)
    steps = m.steps if m.epochs else m.steps or DEFAULT_STEPS * window
    allowed_values: tuple[tuple[Any, Sequence[Any] | None], ...] = (
        (r.device, m.device),
        (r.precision, m.precision),
        (r.ranks, m.ranks),
        (r.nodes, [r.ranks // m.ranks_per_node] if m.ranks_per_node else m.nodes),
        (r.seed, m.seed),
        (r.fixed_batch_size, _batch_sizes_allowed_by_matrix(m, r, network.batch_size)),
        (r.threads, m.threads if isinstance(m.threads, list | tuple) else None),
        (r.input, m.loader and [LOADER.to_stored(name) for name in m.loader]),
        *(
            (
                getattr(r, name),
                training.replace_defaults_with_none(network, name, m.solver_settings[name]),
            )
            for name in SOLVER
        ),
        *(_stored_and_allowed_values(m, r)),
        (r.probe, m.probe or [None]),
        (r.revision, [None]),
        (r.python, [None]),
        (r.launcher, [m.launcher] if m.probe and m.launcher else None),
    )
    if not all(allowed is None or value in allowed for value, allowed in allowed_values):
        return False
    single_values = (
        (r.epochs, m.epochs),
        (r.steps, steps),
        (r.warmup, m.warmup),
        (r.scaling, m.scaling),
        (r.checkpoints, m.checkpoints),
    )
    if any(value != expected for value, expected in single_values):
        return False
    kernels = (
        framework_adapter.choose_kernels(m.kernel, r.device) if framework_adapter else m.kernel
    )
    strategy_matches = "default" in m.strategy or r.ranks == 1 or r.strategy in m.strategy
    if framework_adapter and r.ranks > 1:
        changed_options = framework_adapter.find_or_build_strategy(r.strategy).non_default_options(
            m.strategy_options, r.device
        )
        strategy_matches &= changed_options == dict(r.strategy_options)
    return r.kernel in kernels and strategy_matches and _includes_data(m, r, network.data)


def _stored_and_allowed_values(m: Matrix, r: Request) -> list[tuple[Any, Sequence[Any] | None]]:
    """Return what the request stores, and what it may store, for each setting with `is_stored`."""
    # In a batch search, the available memory or the user sets the limit, so any limit matches.
    free_field = "memory_limit" if isinstance(m.batch_size, BatchSearch) else None
    return [
        (getattr(r, field), values)
        for field, values in list_stored_values(m).items()
        if field != free_field
    ]


def _batch_sizes_allowed_by_matrix(m: Matrix, r: Request, default: int) -> Sequence[int]:
    """Return the batch sizes in the matrix, or `default` if it has none.

    For a batch search, return the request's batch size if it is within the search's range.
    """
    if isinstance(m.batch_size, BatchSearch):
        size, last = r.fixed_batch_size, m.batch_size.most
        return [size] if size >= m.batch_size.start and (last is None or size <= last) else []
    return m.batch_size or [default]


def _includes_data(m: Matrix, r: Request, default: str) -> bool:
    """Return whether the matrix includes the request's data set.

    `default` is the workload's data set. A matrix names a prepared data set with its format, such
    as "digits-lmdb". The name "digits" alone means only the built-in digits.
    """
    built_in = r.data_set is None
    if m.data is None:
        return built_in and r.data == ("synthetic" if m.steps and not m.epochs else default)
    names = {r.data} if built_in or r.data not in sets.BUILT_IN else set()
    names |= {f"{r.data}-{r.data_set.format}"} if r.data_set else set()
    return any(name.partition("@")[0] in names for name in m.data)
