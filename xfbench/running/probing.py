"""Probes: launches that try what a framework supports of an HPC system, and what came of them.

A probe is a small training under the conditions in question. Its record says, feature by
feature, "yes", "no" or "not here" (nothing here to try it with), each with a line of evidence.
What happens inside a rank is the worker's (`worker/probes.py`); here is what is set
up around it, and what several ranks' words come to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from xfbench import adapter
from xfbench.adapter import Adapter
from xfbench.base.errors import UnavailableError
from xfbench.environments.environment import Environment
from xfbench.host import modules, sites
from xfbench.records.features import Support
from xfbench.records.record import Record
from xfbench.request import Request

_OF = {
    "process": ("affinity", "transparent_huge_pages", "numa", "high_bandwidth", "signal"),
    "huge_pages": ("huge_pages",),
    "modules": ("modules",),
}
# How glibc's malloc asks for huge pages: advises transparent ones, or takes reserved ones.
_TUNABLES = {"process": "glibc.malloc.hugetlb=1", "huge_pages": "glibc.malloc.hugetlb=2"}
_MODULE = "xfbench-probe/1"
_MEMORY = Path("/proc/meminfo")


def features(request: Request) -> tuple[str, ...]:
    """What a probe like that answers."""
    if request.probe == "native":
        return ("native_slurm" if request.launcher == "slurm" else "native",)
    if request.probe != "ranks":
        return _OF.get(request.probe or "", ())
    if request.device == "cuda":
        return ("gpus",)
    if request.launcher == "slurm":
        return ("slurm",)
    own = _own_means(request.framework)
    found: list[str] = []
    by_mpi, locally = request.strategy == "mpi", request.launcher == "local"
    if not by_mpi or not own:
        found += ["ranks", "own_cores", "joining", "fast_network"] if locally else []
        found += ["mpirun", "pmix"] if not locally else []
    if by_mpi:
        found += ["mpich", "fast_mpi"] if locally else ["mpi"]
    return tuple(found)


def words(request: Request) -> str | None:
    """Which probe, for people; None for what is none."""
    if request.probe not in ("ranks", "native"):
        return request.probe and f"probe {request.probe.replace('_', ' ')}"
    return f"probe {request.probe} by {request.launcher}"


def variables(request: Request) -> dict[str, str]:
    """What a probe sets in its worker."""
    chosen = _TUNABLES.get(request.probe or "")
    return {"GLIBC_TUNABLES": chosen} if chosen else {}


def placed(request: Request, described: Adapter, found: Environment, folder: Path) -> Environment:
    """The environment as the probe wants it: out of a module of its own, where that is tried.

    Raises UnavailableError where there is nothing here to try it with.
    """
    if request.probe == "huge_pages" and not _reserved():
        raise UnavailableError("no huge pages are reserved (HugePages_Free is 0)")
    if request.probe != "modules" or found.kind == "modules":
        return found
    init = sites.load(request.site).modules.init
    below = folder / "modules"
    file = below / _MODULE
    file.parent.mkdir(parents=True)
    file.write_text(_modulefile(request, described, found), encoding="utf-8")
    loaded = modules.load_environment(init, (str(below),), (_MODULE,))
    name = found.interpreter.name
    interpreter = modules.find_interpreter(loaded, name)
    if interpreter != found.interpreter:
        raise UnavailableError(f"the module leads to another {name} than its own")
    return replace(found, kind="modules", interpreter=interpreter, loaded=loaded)


def _modulefile(request: Request, described: Adapter, found: Environment) -> str:
    """In the language that Lmod and Environment Modules both read."""
    own = {name: value for name, value in described.environment.variables.items() if value}
    filled = {name: value.replace("{prefix}", str(found.prefix)) for name, value in own.items()}
    lines = [f"prepend-path PATH {{{found.interpreter.parent}}}"]
    lines += [f"setenv {name} {{{value}}}" for name, value in filled.items()]
    return "\n".join(["#%Module1.0", *lines, ""])


def _reserved(file: Path = _MEMORY) -> bool:
    lines = file.read_text().splitlines() if file.exists() else []
    return any(ln.startswith("HugePages_Free:") and int(ln.split()[1]) for ln in lines)


def supported(request: Request, reply: Mapping[str, Any]) -> tuple[Support, ...]:
    """What came of it, by what its ranks replied. Raises KeyError or pydantic's error."""
    if request.probe == "native":
        return _by_itself(request, reply)
    told = [Support.model_validate(one) for one in reply["support"]]
    if request.probe == "modules":
        says = f"`module load {_MODULE}` gave the interpreter, which trained {_updates(reply)}"
        told.append(Support(feature="modules", supported="yes", evidence=says))
    if request.probe == "ranks":
        told += _of_ranks(request, reply)
    return tuple(told)


def answers(record: Record) -> tuple[Support, ...]:
    """What a probe's record says of each feature; of one without an outcome its reason says it."""
    request = record.request
    if request is None or not request.probe:
        return ()
    if record.support:
        return record.support
    here = bool(record.machine and record.machine.accelerators) or request.device == "cpu"
    asked = not (request.probe == "native" and record.status == "unsupported")
    tried = record.status != "unavailable" and here and asked
    reason = " ".join((record.reason or record.status).split())
    said = reason if record.status.startswith("un") else f"{record.status}: {reason}"
    return tuple(
        Support(feature=name, supported="no" if tried else "not here", evidence=said)
        for name in features(request)
    )


def _of_ranks(request: Request, reply: Mapping[str, Any]) -> list[Support]:
    places = _places(reply)
    alike = len({place["parameters"] for place in places}) == 1
    way = f"{len(places)} ranks by {request.strategy_text}"
    trained = (
        f"{way}: the same parameters after {_updates(reply)}"
        if alike
        else f"{way} have different parameters after {_updates(reply)}"
    )
    joined = "yes" if alike else "no"
    means = "; ".join((trained, *reply["observed"].get("exchange", ())[:1]))
    told_by = sorted({name for place in places for name in place["told_by"]})
    found: dict[str, tuple[str, str]] = {
        "ranks": (joined, trained),
        "own_cores": _own_cores(places),
        "joining": (joined, means),
        "mpich": (joined, f"{trained}; {_libraries(places)}"),
        "mpi": (joined, f"{trained}; {_libraries(places)}"),
        "mpirun": (joined, f"{trained}; {_starter(told_by)}"),
        "slurm": (joined, f"{trained}; {_starter(told_by)}"),
        "pmix": _pmix(told_by),
        "fast_network": _fast(places),
        "fast_mpi": _fast(places),
        "gpus": (joined, means),
    }
    if request.strategy == "mpi":
        by_loop = "no way of its own: its gradients were joined by MPI from the training loop"
        found["joining"] = found["fast_network"] = ("no", by_loop)
    return [
        Support.model_validate({"feature": name, "supported": yes, "evidence": evidence})
        for name in features(request)
        for yes, evidence in [found[name]]
    ]


def _by_itself(request: Request, reply: Mapping[str, Any]) -> tuple[Support, ...]:
    counts = [place["found"] for place in _places(reply)]
    said = next((place["said"] for place in _places(reply) if place["said"]), "")
    words = said or f"{len(counts)} ranks were started, and find {', '.join(map(str, counts))}"
    [feature] = features(request)
    supported: Literal["yes", "no"] = "yes" if set(counts) == {request.ranks} else "no"
    return (Support(feature=feature, supported=supported, evidence=words),)


def _own_means(framework: str) -> list[str]:
    ways = adapter.load(framework).strategies if framework in adapter.list_names() else ()
    return [name for name in ways if name not in ("none", "mpi")]


def _updates(reply: Mapping[str, Any]) -> str:
    return f"{_places(reply)[0]['updates']} updates"


def _places(reply: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    places: Sequence[Mapping[str, Any]] = reply.get("places") or [reply["place"]]
    return places


def _own_cores(places: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    if any(place["own"] is None for place in places):
        return "not here", f"too few processors to give each of {len(places)} ranks its own"
    told = "; ".join(
        f"rank {number} on CPU {', '.join(map(str, place['cpus']))}"
        for number, place in enumerate(places)
    )
    kept = all(set(place["cpus"]) <= set(place["own"]) for place in places)
    taken = [cpu for place in places for cpu in place["cpus"]]
    return "yes" if kept and len(set(taken)) == len(taken) else "no", told


def _libraries(places: Sequence[Mapping[str, Any]]) -> str:
    mapped = sorted({name for place in places for name in place["mpi"]})
    return f"mapped: {', '.join(mapped) or 'no libmpi'}"


def _starter(told_by: Sequence[str]) -> str:
    family = (
        "Open MPI's"
        if any(name.startswith("OMPI_") for name in told_by)
        else "MPICH's"
        if "PMI_RANK" in told_by
        else "Slurm's"
    )
    return f"told their places by {family} variables"


def _pmix(told_by: Sequence[str]) -> tuple[str, str]:
    seen = [name for name in told_by if name.startswith("PMIX_")]
    seen.sort(key=lambda name: name not in ("PMIX_RANK", "PMIX_NAMESPACE"))
    others = [name for name in told_by if name.startswith("PMI_")]
    if seen:
        return "yes", f"ranks see {', '.join(seen[:3])}"
    return "no", f"ranks see {', '.join(others[:3]) or 'neither PMIX_ nor PMI_ variables'}"


def _fast(places: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    mapped = sorted({name for place in places for name in place["fast"]})
    devices = sorted({name for place in places for name in place["devices"]})
    there = f"devices: {', '.join(devices)}" if devices else "no device in /sys/class/infiniband"
    if mapped:
        return "yes", f"ranks that train map {', '.join(mapped[:4])}; {there}"
    why = f"ranks that train map none of them; {there}"
    return ("no" if devices else "not here"), why
