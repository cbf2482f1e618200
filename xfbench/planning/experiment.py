"""Experiments: TOML files whose matrices of settings are expanded into cells.

A study is an experiment that also analyses its records (`study_form.py`). This module checks the
names of frameworks, workloads and other settings before the first launch.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import gcd, prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from xfbench.base import errors, paths, toml_files
from xfbench.datasets import sets
from xfbench.environments import environment
from xfbench.host import machine, sites
from xfbench.launchers.resources import LAUNCHERS
from xfbench.model import adapter, settings, training
from xfbench.model.request import Cell, Protocol, count_ranks_sharing_a_batch
from xfbench.model.strategy import Value
from xfbench.planning import pinning
from xfbench.planning.matrix import Matrix
from xfbench.planning.study_form import (
    SIZES,
    Analysis,
    PreparedData,
    QuotedFigure,
    Size,
    UnjudgedFinding,
    as_list,
)
from xfbench.worker import affinity
from xfbench.workloads import workloads

DEFAULT_STEPS = 20
# Minimum durations in seconds if a matrix says nothing about the length of its launches.
_DEFAULT_MIN_SECONDS = {"min_seconds": 5.0, "min_warmup_seconds": 1.0}
DEFAULT_INPUT_THREADS = 1
# Steps between two synchronizations. A GPU queues steps and would idle during a synchronization.
WINDOWS = {"cpu": 1, "cuda": 10}
LOADER = settings.BY_NAME["loader"]
_LEAST_FOR_ORDER = 3  # launches of each cell before its order may be known
MAX_CELLS = 100_000
MAX_LAUNCHES = 1_000_000
MAX_LOCAL_RANKS = 1024  # with launcher local


def _split_option_lists(matrices: Any) -> Any:
    """Return the tables of the matrices, with one table for each value of a strategy option."""
    if not isinstance(matrices, Sequence):
        return matrices
    tables = []
    for matrix in matrices:
        options = matrix.get("strategy_options") if isinstance(matrix, Mapping) else None
        if isinstance(options, Mapping):
            choices = itertools.product(*map(as_list, options.values()))
            combined = [dict(zip(options, values, strict=True)) for values in choices]
            tables += [{**matrix, "strategy_options": values} for values in combined]
        else:
            tables.append(matrix)
    return tables


class Experiment(BaseModel):
    """A named set of matrices, and the question that their results answer.

    - `sources`: keys of the publications that asked the question.
    - `method`: how the question is answered, in a few sentences.
    - `limits`: what is not tested.
    - `crowded`: if true, ranks may share processors; otherwise, cells that need this are omitted.
    - `prepared`: data sets that the study writes to disk if they are missing.
    - `present`: optional data sets, used only if they are in the data folder.
    - `unjudged`: published sentences that no claim judges, with the reasons.
    - `published`: published figures of a user's study. Built-in studies have theirs in
      `store/published`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    question: str
    sources: Sequence[str] = ()
    method: str = ""
    limits: Sequence[str] = ()
    crowded: bool = False
    prepared: PreparedData | None = None
    present: Sequence[str] = ()
    matrix: Annotated[Sequence[Matrix], BeforeValidator(_split_option_lists)] = Field(min_length=1)
    analysis: Sequence[Analysis] = ()
    unjudged: Sequence[UnjudgedFinding] = ()
    published: Sequence[QuotedFigure] = ()

    @property
    def sizes(self) -> list[Size]:
        """Return the sizes that the matrices name, or only "laptop" if they name none."""
        named = [size for size in SIZES if any(size in matrix.size for matrix in self.matrix)]
        return named or ["laptop"]

    def matrices_of_size(self, size: Size) -> list[Matrix]:
        """Return the matrices that list this size, and those that list no size."""
        return [matrix for matrix in self.matrix if not matrix.size or size in matrix.size]


def user_studies_folder() -> Path:
    """Return the folder of the user's studies.

    The environment variable `XFBENCH_STUDIES` names the folder. If the variable is not set, the
    folder is `studies` in xfbench's configuration folder.
    """
    chosen = os.environ.get("XFBENCH_STUDIES")
    if chosen:
        return paths.expand_user(chosen).absolute()
    return paths.user_config() / "studies"


def built_in_and_user_experiment_files() -> dict[str, Path]:
    """Return the file of each experiment, by experiment name.

    A user's file replaces the built-in file of the same name.
    """
    roots = (paths.package_folder("xfbench.planning.experiments"), user_studies_folder())
    return {file.stem: file for root in roots for file in sorted(root.glob("*.toml"))}


def list_names() -> list[str]:
    """Return the sorted names of all experiments."""
    return sorted(built_in_and_user_experiment_files())


def load(name_or_path: str) -> Experiment:
    """Load the experiment with this name, or from the TOML file at this path.

    Raises UsageError if the file does not exist or is invalid.
    """
    file = (
        Path(name_or_path)
        if name_or_path.endswith(".toml")
        else built_in_and_user_experiment_files().get(name_or_path)
    )
    if file is None or not file.is_file():
        raise errors.unknown_name_error("experiment", name_or_path, list_names())
    text, content = toml_files.read_text_and_content(file)
    experiment = toml_files.validate(Experiment, content, file, text)
    if experiment.name != file.stem:
        raise errors.UsageError(
            f"{file}: name: {experiment.name!r} must equal the file's name, {file.stem!r}"
        )
    return experiment


def check_names(experiment: Experiment) -> None:
    """Check the names in all matrices, such as those of frameworks, workloads and kernels.

    Raises UsageError if a name is unknown. Data sets and sites are not checked, because another
    machine may have them.
    """
    networks = workloads()
    for matrix in experiment.matrix:
        _check_values(matrix, networks)
        _check_strategy_options(matrix)


def build_matrix(**values: Any) -> Matrix:
    """Build a matrix from values of its fields. Raises UsageError if a value is invalid."""
    try:
        return Matrix.model_validate(values)
    except ValidationError as error:
        raise errors.UsageError(toml_files.describe_problem(error, Matrix)) from error


def expand_matrices(
    matrices: Sequence[Matrix], pythons: Mapping[str, Path] | None = None
) -> list[tuple[Cell, Protocol]]:
    """Return every cell of the matrices, paired with the protocol that sets its number of launches.

    `pythons` maps a framework to the interpreter that the user chose for it. Raises UsageError if a
    setting is invalid, if interpreters have names, or if the matrices have too many cells or
    launches.
    """
    for key in pythons or {}:
        if ":" in key:
            raise errors.UsageError(
                f"--python {key}=...: only `xfbench run` has named interpreters"
            )
    cell_protocols = [pair for matrix in matrices for pair in _expand_matrix(matrix, pythons or {})]
    launches = sum(protocol.most for _, protocol in cell_protocols)
    if launches > MAX_LAUNCHES:
        raise errors.UsageError(f"{launches:,} launches are too many: at most {MAX_LAUNCHES:,}")
    return cell_protocols


def _expand_matrix(m: Matrix, pythons: Mapping[str, Path]) -> list[tuple[Cell, Protocol]]:
    networks = workloads()
    site_name = sites.register_file(m.site)
    _check_values(m, networks)
    _check_ranks(m)
    _check_strategy_options(m)
    site = sites.load_site(m.site)
    rank_layouts = _ranks_and_nodes_pairs(m)
    if not rank_layouts:
        raise errors.UsageError(
            "nodes: the ranks cannot be divided evenly: change --ranks, --nodes or --ranks-per-node"
        )
    threads = _thread_count_choices(m, site, rank_layouts)
    sizes: Sequence[int | None] = m.batch_sizes or [None]
    main_points = [
        (*point, kernel)
        for point in itertools.product(m.workload, m.framework, m.device, m.precision)
        for kernel in adapter.load(point[1]).choose_kernels(m.kernel, point[2])
    ]
    sources: Sequence[str | None] = m.data or [None]
    prepared_sets = {
        name: sets.find_data_set(name) for name in m.data or () if name not in sets.BUILT_IN
    }
    data_set_facts = {
        name: (prepared_set.manifest.name, prepared_set.describe_for_request())
        for name, prepared_set in prepared_sets.items()
    }
    loaders: Sequence[str | None] = m.loader or [None]
    probes: Sequence[str | None] = m.probe or [None]
    other_settings = (
        threads,
        sizes,
        rank_layouts,
        m.strategy,
        sources,
        loaders,
        m.seed,
        probes,
        _combine_stored_settings(m),
    )
    count = len(main_points) * prod(
        len(choices) for choices in (*other_settings, *filter(None, m.solver_settings.values()))
    )
    if count > MAX_CELLS:
        raise errors.UsageError(f"{count:,} cells are too many: at most {MAX_CELLS:,}")
    protocol = _protocol(m)
    protocol_of_cell: dict[Cell, Protocol] = {}
    points = itertools.product(main_points, itertools.product(*other_settings))
    for (name, framework, device, precision, kernel), other_values in points:
        (
            threads_of_rank,
            size,
            rank_layout,
            strategy,
            source,
            loader,
            seed,
            probe,
            stored_settings,
        ) = other_values
        ranks, nodes = rank_layout
        framework_adapter = adapter.load(framework)
        strategy_name = _resolve_strategy(framework_adapter, strategy, ranks)
        workload = networks[name]
        data = source or ("synthetic" if m.steps and not m.epochs else workload.data)
        data, data_set = data_set_facts.get(data, (data, None))
        batch_size = size or workload.batch_size
        sharing = count_ranks_sharing_a_batch(m.scaling, ranks, nodes)
        if batch_size % sharing:
            raise errors.UsageError(
                f"a batch of {batch_size} cannot be divided evenly among {sharing} ranks: "
                "choose another --batch-size"
            )
        per_rank = batch_size // sharing
        window = m.sync_every or gcd(WINDOWS[device], m.steps or 0)
        try:
            cell = Cell(
                framework=framework,
                environment=environment.determine_kind(
                    framework_adapter, pythons.get(framework), m.site
                ),  # type: ignore[arg-type]
                workload=name,
                device=device,
                precision=precision,
                kernel=kernel,
                threads=_default_threads(m, site, device, ranks // nodes)
                if threads_of_rank is None
                else threads_of_rank,
                ranks=ranks,
                nodes=nodes,
                strategy=strategy_name,
                strategy_options=_changed_options(
                    framework_adapter, strategy_name, device, m.strategy_options
                ),
                scaling=m.scaling,
                global_batch_size=per_rank * ranks,
                batch_size_per_rank=per_rank,
                data=data,
                data_set=data_set,
                input=LOADER.to_stored(loader) or ("ours" if data_set else None),
                input_threads=_loader_threads(m) if data_set else m.loader_threads,
                steps=m.steps if m.epochs else m.steps or DEFAULT_STEPS * WINDOWS[device],
                epochs=m.epochs,
                warmup=m.warmup,
                window=window,
                seed=seed,
                affinity=m.pinning
                or (
                    "cores"
                    if site.reserved_cores_in(m.partition)
                    else _default_affinity(rank_layouts)
                ),
                launcher=m.launcher or _default_launcher(site),
                site=site_name,
                checkpoints=m.checkpoints,
                profile=m.profile,
                probe=probe,
                **stored_settings,
            )
            protocol_of_cell |= dict.fromkeys(
                training.solver_variants(cell, m.solver_settings), protocol
            )
        except ValidationError as error:
            raise errors.UsageError(toml_files.describe_problem(error, Cell)) from error
    return list(protocol_of_cell.items())


def _check_values(m: Matrix, networks: Collection[str]) -> None:
    """Raise UsageError for an empty list, a number that is too large, or an unknown name."""
    allowed_names: dict[str, Collection[str]] = {
        "framework": adapter.list_names(),
        "workload": networks,
        "kernel": _valid_kernel_names(m.framework),
        "strategy": _list_strategies(),
    }
    allowed_names |= {each.name: each.choices for each in settings.SETTINGS if each.choices}
    for setting in settings.SETTINGS:
        values = getattr(m, setting.name)
        if values is None:
            continue
        if setting.is_list and not values:
            raise errors.UsageError(f"no {setting.name} was given: give at least one")
        allowed = allowed_names.get(setting.name)
        for value in values if setting.is_list else [values]:
            setting.check_maximum(value)
            if allowed is not None and value not in allowed:
                raise errors.unknown_name_error(setting.name, value, list(allowed))


def _combine_stored_settings(m: Matrix) -> list[dict[str, Any]]:
    """Return every combination of the settings whose cell fields are generated, by field."""
    choices = list_stored_values(m)
    return [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]


def list_stored_values(m: Matrix) -> dict[str, list[Any]]:
    """Return the values of a matrix's cells for each cell field that is generated from a setting.

    A matrix that says nothing about the length of its launches has default minimum durations.
    """
    values_by_field = {}
    for setting in settings.SETTINGS:
        if setting.is_stored:
            value = getattr(m, setting.name)
            values = value or [None] if setting.is_list else [value]
            values_by_field[setting.cell_field] = [setting.to_stored(each) for each in values]
    has_length = m.steps is not None or m.epochs is not None or m.probe is not None
    for field, default in _DEFAULT_MIN_SECONDS.items():
        [seconds] = values_by_field[field]
        if seconds is None and not has_length:
            seconds = default
        values_by_field[field] = [seconds or None]
    return values_by_field


def _check_ranks(m: Matrix) -> None:
    if max(m.ranks) > 1 and m.scaling is None:
        raise errors.UsageError(
            "--ranks above 1 needs --scaling strong (--batch-size is the global batch), "
            "weak (it is per rank) or per-node (it is per node)"
        )
    is_local = (m.launcher or sites.load_site(m.site).launcher) == "local"
    if is_local and max(m.ranks) > MAX_LOCAL_RANKS:
        raise errors.UsageError(
            f"{max(m.ranks):,} ranks are too many for launcher local: use at most "
            f"{MAX_LOCAL_RANKS:,}, or --launcher mpi or slurm"
        )


def _protocol(m: Matrix) -> Protocol:
    if m.launches:
        return Protocol.fixed(m.launches)
    if m.until_ranked:
        return Protocol(least=_LEAST_FOR_ORDER, precision=m.until_precision, ranked=True)
    return Protocol(precision=m.until_precision)


def data_folders_by_lookup_key(matrices: Sequence[Matrix]) -> dict[str, Path]:
    """Return the folders of the prepared data sets that the matrices name.

    The keys are `PreparedSet.folder_lookup_key`. Raises UsageError if a data set does not exist.
    """
    names = {name for matrix in matrices for name in matrix.data or ()} - set(sets.BUILT_IN)
    data_sets = [sets.find_data_set(name) for name in sorted(names)]
    return {
        data_set.describe_for_request().folder_lookup_key: data_set.folder for data_set in data_sets
    }


def find_site_file(matrices: Iterable[Matrix]) -> Path | None:
    """Return the absolute path of the matrices' site file; None if no site is given as a file."""
    return next(filter(None, (sites.absolute_file(matrix.site) for matrix in matrices)), None)


def has_guessed_threads(matrices: Iterable[Matrix]) -> bool:
    """Return whether a number of threads follows from the cores of the site or of this host."""
    return any(matrix.threads in (None, "powers") for matrix in matrices)


def _loader_threads(m: Matrix) -> int:
    return DEFAULT_INPUT_THREADS if m.loader_threads is None else m.loader_threads


def _default_threads(m: Matrix, site: sites.Site, device: str, ranks_per_node: int) -> int:
    """Return one rank's even share of the cores that ranks may use on a node.

    With GPUs, the cores are shared by as many ranks as the node has GPUs, or by the most ranks of
    the matrix, whatever the number of ranks. So rows of different numbers of ranks have the same
    threads.

    If ranks are pinned to sockets or NUMA nodes, the share is at most that of the rank's socket or
    NUMA node. Those of this host count, unless the site defines the cores of a node.
    """
    if device == "cuda":
        most_ranks = max(ranks // nodes for ranks, nodes in _ranks_and_nodes_pairs(m))
        ranks_per_node = max(most_ranks, _gpus_of_node(m, site))
    share = max(1, site.cores_for_ranks(m.partition, machine.usable_cores()) // ranks_per_node)
    site_defines_cores = site.cores_for_ranks(m.partition, 0) > 0
    if m.pinning is None or m.pinning not in affinity.GROUP_NAMES or site_defines_cores:
        return share
    allowed = os.sched_getaffinity(0)
    try:
        share_of_group = pinning.even_share_of_group(
            m.pinning, ranks_per_node, site.reserved_cores_in(m.partition), allowed
        )
    except affinity.PinningError:  # reported later, unless the ranks run on another host
        return share
    return min(share, share_of_group)


def _gpus_of_node(m: Matrix, site: sites.Site) -> int:
    """Return the number of GPUs of a node, or 0 if it is unknown."""
    if site.gpus:
        return site.gpus
    launcher = m.launcher or _default_launcher(site)
    return machine.count_visible_gpus() if launcher == "local" else 0


def _ranks_and_nodes_pairs(m: Matrix) -> list[tuple[int, int]]:
    """Return the pairs (ranks, nodes) that put the same number of ranks on each node."""
    if ranks_per_node := m.ranks_per_node:
        if list(m.nodes) != [1]:
            raise errors.UsageError("--ranks-per-node sets the number of nodes: remove --nodes")
        return [
            (ranks, ranks // ranks_per_node) for ranks in m.ranks if ranks % ranks_per_node == 0
        ]
    return [(ranks, nodes) for ranks in m.ranks for nodes in m.nodes if ranks % nodes == 0]


def _default_affinity(rank_layouts: Sequence[tuple[int, int]]) -> Literal["cores", "none"]:
    """Return "cores" if ranks share a node in one of the pairs (ranks, nodes), else "none".

    All cells of a matrix are pinned alike. Otherwise their speeds could not be compared.
    """
    return "cores" if any(ranks > nodes for ranks, nodes in rank_layouts) else "none"


def _thread_count_choices(
    m: Matrix, site: sites.Site, rank_layouts: Sequence[tuple[int, int]]
) -> Sequence[int | None]:
    """Return the numbers of threads per rank. None stands for an even share of the cores."""
    if m.threads != "powers":
        return m.threads or [None]
    max_threads = max(
        _default_threads(m, site, device, ranks // nodes)
        for device in m.device
        for ranks, nodes in rank_layouts
    )
    return sorted({*(2**n for n in range(max_threads.bit_length())), max_threads})


def _default_launcher(site: sites.Site) -> str:
    if site.launcher not in LAUNCHERS:
        raise errors.UsageError(
            f"{site.title}: xfbench cannot submit jobs to {site.launcher}: run it in an allocation "
            "with --launcher mpi"
        )
    return site.launcher


def _resolve_strategy(framework_adapter: adapter.Adapter, strategy: str, ranks: int) -> str:
    """Return the name of the strategy, which is "none" for a single rank.

    If `strategy` is "default", return the framework's first strategy for several ranks.
    """
    if ranks == 1:
        return "none"
    if strategy != "default":
        return strategy
    return next((name for name in framework_adapter.strategies if name != "none"), "none")


def _check_strategy_options(m: Matrix) -> None:
    """Raise UsageError if the matrix sets an option that none of its strategies has."""
    known_options = {
        option
        for framework in m.framework
        for framework_adapter in [adapter.load(framework)]
        for name in (framework_adapter.strategies if "default" in m.strategy else m.strategy)
        for option in framework_adapter.find_or_build_strategy(name).options
    }
    for name in m.strategy_options:
        if not known_options:
            raise errors.UsageError(f"strategy option {name!r}: the strategies have no options")
        if name not in known_options:
            raise errors.unknown_name_error("strategy option", name, known_options)


def _changed_options(
    framework_adapter: adapter.Adapter, strategy: str, device: str, chosen: Mapping[str, Value]
) -> tuple[tuple[str, Value], ...]:
    """Return the chosen options whose values differ from the defaults, sorted by name.

    For the strategy "none", return no options.
    """
    if strategy == "none":
        return ()
    return tuple(
        sorted(
            framework_adapter.find_or_build_strategy(strategy)
            .non_default_options(chosen, device)
            .items()
        )
    )


def _list_strategies() -> list[str]:
    """Return the names of the strategies of all frameworks.

    A strategy of another framework is allowed: its cells are unsupported.
    """
    names = {name for each in adapter.list_names() for name in adapter.load(each).strategies}
    return sorted({"default", "none"} | names)


def _valid_kernel_names(frameworks: Sequence[str]) -> list[str]:
    kernels = {"all", "default"}
    for framework in frameworks:
        if framework in adapter.list_names():
            kernels |= set(adapter.load(framework).kernels)
    return sorted(kernels)
