"""How a launch ended, in words for people who follow a run."""

from __future__ import annotations

from xfbench import statistics
from xfbench.host import conditions
from xfbench.model.record import Record


def describe_outcome(record: Record) -> str:
    """Return the throughput, the status and the reason, or what disturbed an ok launch."""
    request = record.request
    figure = ""
    if record.measurement and request and not request.probe:
        figure = f"{format_speed(statistics.launch_throughput(record))} images/s · "
    reason = f": {record.reason}" if record.reason else ""
    if request and request.probe:
        reason = reason or f": {', '.join(support.supported for support in record.support or ())}"
    elif record.status == "ok":
        noise = conditions.list_record_disturbances(record)
        reason = f" · noisy: {'; '.join(noise)}" if noise else ""
        reason += " · level changed" if statistics.is_level_changed(record) else ""
    return f"{figure}{record.status}{reason}"


def format_speed(images_per_second: float) -> str:
    """Return images per second as text with about four digits."""
    return f"{images_per_second:,.0f}" if images_per_second >= 1000 else f"{images_per_second:.4g}"
