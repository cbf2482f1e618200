"""Whether a framework can do what a request says, by what its adapter says of itself."""

from __future__ import annotations

from xfbench import adapter
from xfbench.request import Request
from xfbench.worker.input import mismatch_reason
from xfbench.workloads import workloads


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
    reason = reason or mismatch_reason(request.data, workloads()[request.workload], stored)
    return reason


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
