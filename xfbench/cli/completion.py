"""Names that the shell completes: of frameworks, networks, studies and sites."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def complete_names(list_names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes the last name of a comma-separated list.

    `list_names` is called when the shell asks, so that other commands need not import anything.
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, start = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in list_names() if name.startswith(start)]

    return complete


def _list_frameworks() -> Iterable[str]:
    from xfbench.model import adapter

    return adapter.list_names()


def _list_workloads() -> Iterable[str]:
    from xfbench.workloads import workloads

    return workloads()


def _list_sites() -> Iterable[str]:
    from xfbench.host import sites

    return sites.list_site_names()


def _list_studies() -> Iterable[str]:
    from xfbench.planning import experiment

    return experiment.list_names()


complete_frameworks = complete_names(_list_frameworks)
complete_workloads = complete_names(_list_workloads)
complete_sites = complete_names(_list_sites)
complete_studies = complete_names(_list_studies)
