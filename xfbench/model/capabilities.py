"""The check whether a framework's adapter supports a request."""

from __future__ import annotations

from xfbench.model import adapter
from xfbench.model.request import Request
from xfbench.worker.input import mismatch_reason
from xfbench.workloads import workloads


def refusal_reason(request: Request) -> str | None:
    """Return why the adapter does not support this request; None if it does."""
    framework_adapter = adapter.load(request.framework, request.revision)
    for kind, requested, supported in (
        ("device", request.device, framework_adapter.devices),
        ("precision", request.precision, framework_adapter.precisions),
        ("kernel", request.kernel, tuple(framework_adapter.kernels)),
        ("strategy", request.strategy, framework_adapter.strategies),
    ):
        if requested not in supported:
            return (
                f"{framework_adapter.title} has no {kind} {requested}: "
                f"it has {', '.join(supported)}"
            )
    if request.ranks > 1 and request.strategy == "none":
        return f"{framework_adapter.title} has no strategy to train on more than one rank yet"
    strategy = framework_adapter.find_or_build_strategy(request.strategy)
    for name, _ in request.strategy_options:
        if name not in strategy.options:
            names = ", ".join(strategy.options) or "none"
            return (
                f"{request.strategy} of {framework_adapter.title} has no option {name}: "
                f"it has {names}"
            )
    kernel = framework_adapter.kernels[request.kernel]
    for requested, supported in (
        (request.precision, kernel.precisions),
        (request.device, kernel.devices),
    ):
        if supported and requested not in supported:
            return (
                f"kernel {request.kernel} of {framework_adapter.title} does not support {requested}"
            )
    options = strategy.options_with_defaults(dict(request.strategy_options), request.device)
    for exclusion in framework_adapter.unsupported:
        fields = exclusion.model_dump(exclude={"reason", "options"})
        fields_match = all(
            getattr(request, name) == value for name, value in fields.items() if value
        )
        if fields_match and exclusion.options.items() <= options.items():
            return exclusion.reason
    data_set_fields = request.data_set.model_dump() if request.data_set else None
    reason = _checkpoint_refusal_reason(request, framework_adapter) or _native_input_refusal_reason(
        request, framework_adapter
    )
    reason = reason or _page_cache_refusal_reason(request, framework_adapter)
    reason = reason or mismatch_reason(request.data, workloads()[request.workload], data_set_fields)
    return reason


def _page_cache_refusal_reason(request: Request, framework_adapter: adapter.Adapter) -> str | None:
    """Return why the ranks cannot prepare the page cache together; None if they can."""
    if (
        request.page_cache
        and framework_adapter.find_or_build_strategy(request.strategy).asynchronous
    ):
        return (
            f"--page-cache needs ranks that wait for each other, unlike those of {request.strategy}"
        )
    return None


def _checkpoint_refusal_reason(request: Request, framework_adapter: adapter.Adapter) -> str | None:
    """Return why the requested checkpoints cannot be taken; None if they can."""
    if request.checkpoints and not framework_adapter.checkpoint:
        return f"the adapter for {framework_adapter.title} saves no checkpoints"
    if (
        request.checkpoints
        and framework_adapter.find_or_build_strategy(request.strategy).asynchronous
    ):
        return f"{request.strategy} keeps the momentum on its servers, and they save no checkpoints"
    return None


def _native_input_refusal_reason(
    request: Request, framework_adapter: adapter.Adapter
) -> str | None:
    """Return why `--loader native` cannot be used; None if it can."""
    if request.input != "native" or request.data_set is None:
        return None
    if request.data_set.format in framework_adapter.readers:
        return None
    format_names = ", ".join(framework_adapter.readers) or "none"
    return (
        f"{framework_adapter.title} has no reader of its own for {request.data_set.format} here: "
        f"it has {format_names}"
    )
