"""`xfbench.run`. Written by `make settings` from settings.py: do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from xfbench import api
from xfbench.model.record import Record


def run(
    framework: str | Sequence[str] | None = None,
    workload: str | Sequence[str] | None = None,
    *,
    device: str | Sequence[str] | None = None,
    precision: str | Sequence[str] | None = None,
    kernel: str | Sequence[str] | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    warmup: int | None = None,
    min_time: float | str | None = None,
    warmup_time: float | str | None = None,
    launches: int | None = None,
    until_precision: float | str | None = None,
    until_ranked: bool = False,
    seed: int | Sequence[int] | None = None,
    threads: int | Sequence[int] | None = None,
    ranks: int | Sequence[int] | None = None,
    nodes: int | Sequence[int] | None = None,
    ranks_per_node: int | None = None,
    strategy: str | Sequence[str] | None = None,
    strategy_options: Mapping[str, int | str] | None = None,
    scaling: str | None = None,
    launcher: str | None = None,
    pinning: str | None = None,
    site: str | None = None,
    partition: str | None = None,
    data: str | Sequence[str] | None = None,
    page_cache: str | Sequence[str] | None = None,
    loader: str | Sequence[str] | None = None,
    loader_threads: int | None = None,
    batch_size: int | Sequence[int] | None = None,
    learning_rate: float | Sequence[float] | None = None,
    lars: float | Sequence[float] | None = None,
    lr_scaling: str | Sequence[str] | None = None,
    lr_warmup: int | Sequence[int] | None = None,
    allocator: str | Sequence[str] | None = None,
    memory_limit: int | str | None = None,
    sync_every: int | None = None,
    checkpoints: int | None = None,
    profile: bool = False,
    revisions: str | Sequence[str] | None = None,
    tuned: bool = False,
    verify: bool = True,
    time_limit: float | str | None = None,
    resume: bool = False,
    account: str | None = None,
    job_time: float | str | None = None,
    wait: bool = True,
    python: Mapping[str, str | Path] | None = None,
    strict: bool = False,
    results: str | Path | None = None,
    checkpoint_dir: str | Path | None = None,
) -> list[Record]:
    """Measure with the settings of `xfbench run`, and return the records.

    Every combination of the given lists is a cell. Every launch is a fresh process.
    Progress is printed to standard error. A setting that is None has its default.

    - `framework`: frameworks (default: caffe,mxnet,tensorflow,torch).
    - `workload`: workloads (see `xfbench workload list`) (default: lenet,convnet).
    - `device`: devices: cpu, cuda (default: cpu).
    - `precision`: precisions: float32, float64, tf32, bfloat16, float16 (default: float32).
    - `kernel`: kernel libraries (see `xfbench framework list`); all stands for each one of the
      framework (default: the framework's).
    - `steps`: timed steps (see --min-time) (default: at least 20; cuda: at least 200).
    - `epochs`: epochs to train, each followed by an evaluation.
    - `warmup`: untimed steps after the first step (default: 3).
    - `min_time`: minimum duration of the timed steps, such as 5s; more than --steps are timed if
      these take less (default: 5s; 0 if --steps or --epochs is given).
    - `warmup_time`: minimum duration of the warm-up after the first step (default: 1s; 0 if --steps
      or --epochs is given).
    - `launches`: launches per cell, each in a fresh process (default: see --until-precision).
    - `until_precision`: relative half-width of the confidence interval to reach, such as 1%: each
      cell is launched 5 to 20 times (default: 2%).
    - `until_ranked`: launch the cells of a leaderboard only until their order is known: any two
      differ certainly, or by less than --until-precision. Also stop if it is not likely enough that
      more launches tell the order.
    - `seed`: seeds of weights and data, such as 0,1,2; the leaderboard has one row for all seeds of
      a configuration (default: 0).
    - `threads`: threads per rank; powers stands for 1, 2, 4 and so on up to the number of cores
      (default: an even share of the cores).
    - `ranks`: numbers of ranks, which are processes that train together (default: 1).
    - `nodes`: numbers of nodes for the ranks (default: 1).
    - `ranks_per_node`: ranks on each node, instead of --nodes. Other numbers of ranks are left out.
    - `strategy`: strategies to train on several ranks (default: the framework's first).
    - `strategy_options`: options of the strategy, such as servers=2,bucket_size=1MB (see
      docs/reference/strategies.md).
    - `scaling`: whether --batch-size is for all ranks together (strong), for each rank (weak), or
      for each node and divided among its ranks (per-node): strong, weak, per-node.
    - `launcher`: launcher of the ranks (default: the site's, else local): local, mpi, slurm.
    - `pinning`: pinning of each rank: to its own cores, a socket, a NUMA node, or none (see
      docs/reference/pinning.md) (default: cores if ranks of a cell share a node or the site
      reserves cores, else none): cores, sockets, numa, none.
    - `site`: site configuration: name or TOML file (see docs/reference/sites.md).
    - `partition`: Slurm partition (default: the site's).
    - `data`: data sets: digits, synthetic, or prepared sets by name or folder (see `xfbench data
      list`) (default: the workload's, but synthetic with --steps).
    - `page_cache`: state of the page cache before each epoch of a prepared set: its files are in
      memory (warm) or not (cold): cold, warm (default: unchanged).
    - `loader`: data loader of a prepared set, xfbench's or the framework's own: xfbench, native
      (default: xfbench).
    - `loader_threads`: data-loading threads; 0 loads in the training thread (default: 1).
    - `batch_size`: images per update (default: the published batch size).
    - `learning_rate`: base learning rates (default: the workload's).
    - `lars`: LARS trust coefficients; 0: no LARS (default: no LARS).
    - `lr_scaling`: LR scaling, in proportion to the batch size (linear) or none: linear, none
      (default: none).
    - `lr_warmup`: learning-rate warm-up in epochs (default: no warm-up).
    - `allocator`: memory allocators: system, jemalloc, tcmalloc (default: system).
    - `memory_limit`: limit for the private memory of a rank, such as 8GB (default: no limit).
    - `sync_every`: steps between synchronizations with the device (default: 1; cuda: 10).
    - `checkpoints`: number of checkpoints to take during the run (default: none).
    - `profile`: run a few extra steps under the framework's profiler and record the time of each
      layer.
    - `revisions`: git revisions whose worker and adapters are measured in turns, such as
      main,working-tree (see docs/regression.md) (default: the running xfbench).
    - `tuned`: use the values found by `xfbench tune` for options you don't set.
    - `verify`: whether to verify first; unverified cells are not ranked.
    - `time_limit`: time limit of one launch, such as 90s or 2h (default: 30m).
    - `resume`: skip launches that are already done.
    - `account`: account to charge a Slurm job to (default: the site's).
    - `job_time`: time limit of a job submitted from a login node, such as 90m or 2h (default: 60m).
    - `wait`: whether to wait for submitted jobs.
    - `python`: Python interpreter of a framework (repeatable).
    - `strict`: refuse to run on a noisy machine, and mark noisy launches as invalid.
    - `results`: results folder (default: $XFBENCH_RESULTS, else ./results).
    - `checkpoint_dir`: directory for temporary checkpoints (default: in the results folder).

    If a setting is invalid, raises UsageError before any launch. A failed launch raises no
    exception. Instead, the `status` of its record is not "ok", and the `reason` says why.

    >>> records = xfbench.run("torch", "lenet", steps=20, launches=3, results="results")
    """
    return api.run_with_settings(locals())
