"""Does the launches of an experiment, one after another, and keeps a record of each.

Launches of different cells are interleaved in a seeded random order, so that the
machine's drift falls on all alike. A cell that cannot be run costs one record and no
time; whatever a worker does, the next launch starts on a machine without its remains.
"""

from __future__ import annotations

import platform
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xfbench import adapter
from xfbench.analysis import statistics
from xfbench.environments import allocators, environment
from xfbench.environments.environment import Environment
from xfbench.errors import UnavailableError
from xfbench.host import conditions, machine, media, roofline
from xfbench.records import facts
from xfbench.records.record import Reads, Record, Status, Storage
from xfbench.request import Cell, Protocol, Request
from xfbench.results.store import Store, silent
from xfbench.running import job, launched, reply, training
from xfbench.worker.input import misfit
from xfbench.workloads import workloads

DEFAULT_TIME_LIMIT = 1800.0

Certified = tuple[Any, ...]
# By which the index chooses what may be done already.
_CHOSEN_BY = ("framework", "workload", "kernel", "threads", "ranks")


@dataclass
class Session:
    """What the launches of one `run` share: where results go, and the environments found so far.

    `unavailable` says per framework why it cannot be had, `unallocated` per allocator;
    `certificates` which certificate covers a kind of cell (`certified_fields`); `time_limit` is in
    seconds. If `strict`, a launch that other work disturbed is invalid. `data_folders` says where
    prepared data sets are (`PreparedSet.place`). Checkpoints lie below `checkpoint_dir`, by default
    in the run's folder.
    """

    store: Store
    environments: dict[str, Environment] = field(default_factory=dict)
    certificates: dict[Certified, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    unallocated: dict[str, str] = field(default_factory=dict)
    time_limit: float = DEFAULT_TIME_LIMIT
    strict: bool = False
    data_folders: dict[str, Path] = field(default_factory=dict)
    checkpoint_dir: Path | None = None
    plain_reads: dict[str, tuple[Reads, ...]] = field(default_factory=dict)

    def prepare(
        self,
        frameworks: Iterable[str],
        pythons: Mapping[str, Path],
        say: environment.Say,
        site: str | None = None,
        allocated: Iterable[str | None] = (),
    ) -> None:
        """Have an environment for each framework, or the reason why not; and these allocators."""
        for name in dict.fromkeys(frameworks):
            try:
                self.environments[name] = environment.ensure(
                    adapter.load(name), pythons.get(name), say, site
                )
            except UnavailableError as error:
                self.unavailable[name] = job.nameless(str(error))
                say(f"{name}: unavailable: {error}")
        for one in filter(None, dict.fromkeys(allocated)):
            try:
                allocators.ensure(one, say)
            except UnavailableError as error:
                self.unallocated[one] = job.nameless(str(error))
                say(f"{one}: unavailable: {error}")

    def folder_of(self, request: Request) -> Path | None:
        """Where the request's data set is, if it is a prepared one."""
        return self.data_folders.get(request.data_set.place) if request.data_set else None

    def storage(self, request: Request) -> Storage | None:
        """What the data lie on; where cold or warm was asked for, plain reads of it, done once."""
        folder = self.folder_of(request)
        if folder is None or request.data_set is None:
            return None
        place = request.data_set.place
        if request.page_cache and place not in self.plain_reads:
            try:
                self.plain_reads[place] = media.measure(folder)
            except media.UnreadableError:  # too little of it to say anything
                self.plain_reads[place] = ()
        return Storage(medium=media.describe(folder), reads=self.plain_reads.get(place, ()))


def plan(cells: Iterable[tuple[Cell, Protocol]], seed: int = 0) -> list[Request]:
    """Every launch that may be needed: blocks of one launch of each cell, each block shuffled."""
    wanted = list(cells)
    order = random.Random(seed)
    requests: list[Request] = []
    for launch in range(1, max((protocol.most for _, protocol in wanted), default=0) + 1):
        block = [cell.request(launch) for cell, protocol in wanted if launch <= protocol.most]
        order.shuffle(block)
        requests += block
    return requests


def run(
    requests: Iterable[Request],
    session: Session,
    protocols: Mapping[Cell, Protocol] | None = None,
    done: Iterable[Record] = (),
) -> Iterator[Record]:
    """Launch each request and yield its record, stored.

    An impossible cell is not tried again, and one that has the precision its protocol asks for
    gets no further launch; the launches `done` before count.
    """
    session.store.prepare()
    finished: set[Cell] = set()
    speeds: dict[Cell, list[float]] = defaultdict(list)
    for record in done:
        if record.request:
            speeds[record.request.cell()] += statistics.launches([record]).values()
    for request in requests:
        cell = request.cell()
        protocol = protocols.get(cell) if protocols else None
        if cell in finished or (protocol and _is_enough(speeds[cell], protocol)):
            continue
        record, folder = _launch(request, session, protocol)
        session.store.add(record, folder)
        if record.status in ("unsupported", "unavailable"):
            finished.add(cell)
        speeds[cell] += statistics.launches([record]).values()
        yield record


def _is_enough(speeds: Sequence[float], protocol: Protocol) -> bool:
    if protocol.precision is None or len(speeds) < protocol.least:
        return False
    return statistics.is_precise(speeds, protocol.precision)


def done(requests: Iterable[Request], store: Store) -> list[Record]:
    """The records of these requests that have an outcome; what failed is to be tried again.

    Oldest first.
    """
    return [
        record
        for record in recorded(requests, store)
        if record.source == "measured" and record.status in ("ok", "invalid")
    ]


def recorded(requests: Iterable[Request], store: Store) -> list[Record]:
    """All records of these requests, oldest first. Only what may be one of them is read."""
    from xfbench.results import index  # DuckDB takes a while to load, and most runs need none
    from xfbench.results.selection import equal

    asked = set(requests)
    if not store.folder.is_dir():
        return []
    kinds = {tuple(str(getattr(one, name)) for name in _CHOSEN_BY) for one in asked}
    with index.opened(store, silent) as known:
        found = [
            record
            for kind in sorted(kinds)
            for _, record in known.select(
                [equal(f"request.{n}", value) for n, value in zip(_CHOSEN_BY, kind, strict=True)]
            )
            if record.request in asked
        ]
    return sorted(found, key=lambda record: (record.created, record.id))


def certified_fields(request: Request) -> Certified:
    """What of a request decides which certificate covers it: threads, batch and data do not."""
    return (
        request.framework,
        request.workload,
        request.kernel,
        request.device,
        request.precision,
        request.ranks,
        request.strategy,
        request.strategy_options,
        training.workload(request).solver,
    )


def refusal(request: Request) -> str | None:
    """Why the framework cannot do this, by what its adapter says of itself; None where it may."""
    described = adapter.load(request.framework)
    for kind, wanted, offered in (
        ("device", request.device, described.devices),
        ("precision", request.precision, described.precisions),
        ("kernel", request.kernel, tuple(described.kernels)),
        ("strategy", request.strategy, described.strategies),
    ):
        if wanted not in offered:
            return f"{described.title} has no {kind} {wanted}: it has {', '.join(offered)}"
    if request.ranks > 1 and request.strategy == "none":
        return f"{described.title} has no strategy to train on more than one rank yet"
    together = described.strategy(request.strategy)
    for name, _ in request.strategy_options:
        if name not in together.options:
            known = ", ".join(together.options) or "none"
            return f"{request.strategy} of {described.title} has no option {name}: it has {known}"
    kernel = described.kernels[request.kernel]
    for wanted, offered in (
        (request.precision, kernel.precisions),
        (request.device, kernel.devices),
    ):
        if offered and wanted not in offered:
            return f"kernel {request.kernel} of {described.title} has no {wanted}"
    options = together.resolved(dict(request.strategy_options), request.device)
    for exclusion in described.unsupported:
        fields = exclusion.model_dump(exclude={"reason", "options"})
        same = all(getattr(request, name) == value for name, value in fields.items() if value)
        if same and exclusion.options.items() <= options.items():
            return exclusion.reason
    stored = request.data_set.model_dump() if request.data_set else None
    reason = _unsaved(request, described) or _unread(request, described)
    reason = reason or _uncontrolled(request, described)
    reason = reason or misfit(request.data, workloads()[request.workload], stored)
    return reason


def obstacle(request: Request) -> tuple[Status, str] | None:
    """Why nothing of this can be launched, and the status that its record has; None if it may.

    Slurm's nodes may have what this one has not: there the worker looks.
    """
    if reason := refusal(request):
        return "unsupported", reason
    if request.device == "cuda" and request.launcher != "slurm" and not machine.accelerators():
        return "unavailable", "no NVIDIA device was found here"
    return None


def _uncontrolled(request: Request, described: adapter.Adapter) -> str | None:
    """Why ranks cannot bring the page cache to a state for all of them."""
    if request.page_cache and described.strategy(request.strategy).asynchronous:
        return f"under {request.strategy} no rank waits until all have emptied the page cache"
    return None


def _unsaved(request: Request, described: adapter.Adapter) -> str | None:
    """Why no checkpoint can be taken, where any is asked for."""
    if request.checkpoints and not described.checkpoint:
        return f"the adapter for {described.title} saves no checkpoints"
    if request.checkpoints and described.strategy(request.strategy).asynchronous:
        return f"under {request.strategy} velocities are the servers', which save no checkpoints"
    return None


def _unread(request: Request, described: adapter.Adapter) -> str | None:
    """Why the framework's own reader cannot be used, where it is asked for."""
    if request.input != "native" or request.data_set is None:
        return None
    if request.data_set.format in described.readers:
        return None
    known = ", ".join(described.readers) or "none"
    return (
        f"{described.title} has no reader of its own for {request.data_set.format} here: "
        f"it has {known}"
    )


def _launch(
    request: Request, session: Session, protocol: Protocol | None
) -> tuple[Record, Path | None]:
    described = adapter.load(request.framework)
    workload = training.workload(request)
    fields: dict[str, Any] = {"request": request, "protocol": protocol}
    fields["workload"] = facts.facts(workload)
    fields["machine"] = machine.describe()
    if standing := obstacle(request):
        return Record.make(status=standing[0], reason=standing[1], **fields), None
    reason = session.unavailable.get(request.framework)
    reason = reason or session.unallocated.get(request.allocator or "")
    if reason:
        return Record.make(status="unavailable", reason=reason, **fields), None
    found = session.environments[request.framework]
    # Before anything is read: what is measured there is not to be seen as another's work.
    if not request.probe:
        fields["limit"] = roofline.limit(request, machine.accelerators())
    data = session.folder_of(request)
    if request.data_set and data is None:
        reason = f"the data set {request.data} is not here: make it with `xfbench data prepare`"
        return Record.make(status="unavailable", reason=reason, **fields), None
    fields["storage"] = session.storage(request)
    folder = session.store.new_run()
    before = conditions.read()
    answer = job.work(
        job.document(
            "train",
            request,
            workload,
            data_folder=data and str(data),
            **job.checkpoint_folder(request, session.checkpoint_dir),
        ),
        request,
        described,
        found,
        folder,
        session.time_limit,
    )
    fields["conditions"] = conditions.between(before, conditions.read(), _used(answer, request))
    fields["certificate"] = session.certificates.get(certified_fields(request))
    record = launched.record(request, answer, described, found, fields, session.strict, data)
    return record, folder


def _used(answer: Mapping[str, Any], request: Request) -> float:
    """Seconds of ranks here that Slurm has started: none of our children, but ours they are."""
    if request.launcher != "slurm":
        return 0.0
    try:
        return float(answer.get("used", {}).get(platform.node(), 0.0))
    except reply.WRONG:
        return 0.0
