"""The check whether a matrix includes a request.

`experiment.expand_matrices` does the reverse: it lists all cells of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Mismatch:
    """A setting that excludes a request from a matrix: its value, and those of the matrix."""

    setting: str
    value: Any
    allowed: Sequence[Any]


def is_in_matrix(m: Matrix, r: Request, catalog: Catalog) -> bool:
    """Return whether the request `r` belongs to the matrix `m`.

    For a setting that the matrix omits, one of two rules applies:

    - If the host or the user decides the setting, such as `threads`, any value belongs to the
      matrix.
    - Otherwise, only the default value belongs to the matrix.

    Launches of a git revision or a named interpreter belong to no matrix.
    """
    return next(find_mismatches(m, r, catalog), None) is None


def find_mismatches(m: Matrix, r: Request, catalog: Catalog) -> Iterator[Mismatch]:
    """Yield each setting that excludes the request `r` from the matrix `m` (see `is_in_matrix`)."""
    for setting, value, allowed in _values_and_allowed_values(m, r, catalog):
        if allowed is not None and value not in allowed:
            yield Mismatch(setting, value, allowed)


def _values_and_allowed_values(
    m: Matrix, r: Request, catalog: Catalog
) -> Iterator[tuple[str, Any, Sequence[Any] | None]]:
    """Yield (setting, value of the request, allowed values); None allows any value."""
    yield "workload", r.workload, m.workload
    yield "framework", r.framework, m.framework
    network, framework_adapter = catalog.workloads.get(r.workload), catalog.adapter(r.framework)
    if network is None:
        if r.workload in m.workload:
            yield "workload", r.workload, ()
        return
    yield "device", r.device, m.device
    yield "precision", r.precision, m.precision
    yield "ranks", r.ranks, m.ranks
    yield "nodes", r.nodes, [r.ranks // m.ranks_per_node] if m.ranks_per_node else m.nodes
    yield "seed", r.seed, m.seed
    batch_sizes = _batch_sizes_allowed_by_matrix(m, r, network.batch_size)
    yield "batch_size", r.fixed_batch_size, batch_sizes
    yield "threads", r.threads, m.threads if isinstance(m.threads, list | tuple) else None
    yield "loader", r.input, m.loader and [LOADER.to_stored(name) for name in m.loader]
    for name in SOLVER:
        values = training.replace_defaults_with_none(network, name, m.solver_settings[name])
        yield name, getattr(r, name), values
    yield from _stored_and_allowed_values(m, r)
    yield "probe", r.probe, m.probe or [None]
    yield "revision", r.revision, [None]
    yield "python", r.python, [None]
    yield "launcher", r.launcher, [m.launcher] if m.probe and m.launcher else None
    window = m.sync_every or WINDOWS.get(r.device, 1)
    yield "epochs", r.epochs, [m.epochs]
    yield "steps", r.steps, [m.steps if m.epochs else m.steps or DEFAULT_STEPS * window]
    yield "warmup", r.warmup, [m.warmup]
    yield "scaling", r.scaling, [m.scaling]
    yield "checkpoints", r.checkpoints, [m.checkpoints]
    kernels = (
        framework_adapter.choose_kernels(m.kernel, r.device) if framework_adapter else m.kernel
    )
    yield "kernel", r.kernel, kernels
    if "default" not in m.strategy and r.ranks > 1:
        yield "strategy", r.strategy, m.strategy
    if framework_adapter and r.ranks > 1:
        changed_options = framework_adapter.find_or_build_strategy(r.strategy).non_default_options(
            m.strategy_options, r.device
        )
        yield "strategy_options", dict(r.strategy_options), [changed_options]
    yield _data_and_allowed_data(m, r, network.data)


def _stored_and_allowed_values(
    m: Matrix, r: Request
) -> list[tuple[str, Any, Sequence[Any] | None]]:
    """Return what the request stores, and what it may store, for each setting with `is_stored`."""
    # In a batch search, the available memory or the user sets the limit, so any limit matches.
    free_field = "memory_limit" if isinstance(m.batch_size, BatchSearch) else None
    return [
        (field, getattr(r, field), values)
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


def _data_and_allowed_data(m: Matrix, r: Request, default: str) -> tuple[str, str, Sequence[str]]:
    """Return "data", the request's data set, and the data sets that the matrix includes.

    `default` is the workload's data set. A matrix names a prepared data set with its format, such
    as "digits-lmdb". The name "digits" alone means only the built-in digits.
    """
    name = f"{r.data}-{r.data_set.format}" if r.data_set else r.data
    if m.data is None:
        return "data", name, ["synthetic" if m.steps and not m.epochs else default]
    allowed = [each.partition("@")[0] for each in m.data]
    if r.data_set and r.data not in sets.BUILT_IN and r.data in allowed:
        return "data", r.data, allowed
    return "data", name, allowed
