"""Probes: launches that test a framework's support for features of HPC systems.

A probe is a short training under the conditions to test. For each feature, the record of the probe
says "yes", "no" or "not here" (this machine cannot test the feature), with a line of evidence. This
module sets up the launch and merges the ranks' replies. `worker/probes.py` does the part inside a
rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from xfbench.base.errors import UnavailableError
from xfbench.base.shared_files import write_file
from xfbench.environments.environment import Environment
from xfbench.host import modules, sites
from xfbench.model import adapter
from xfbench.model.adapter import Adapter
from xfbench.model.features import Support
from xfbench.model.record import Record
from xfbench.model.request import Request

_FEATURES_BY_PROBE = {
    "process": ("affinity", "transparent_huge_pages", "numa", "high_bandwidth", "signal"),
    "huge_pages": ("huge_pages",),
    "modules": ("modules",),
}
# How glibc's malloc gets huge pages: 1 requests transparent huge pages, 2 uses reserved ones.
_TUNABLES = {"process": "glibc.malloc.hugetlb=1", "huge_pages": "glibc.malloc.hugetlb=2"}
_MODULE = "xfbench-probe/1"
_MEMORY = Path("/proc/meminfo")


def features_tested_by_probe(request: Request) -> tuple[str, ...]:
    """Return the features that the request's probe tests."""
    if request.probe == "native":
        return ("native_slurm" if request.launcher == "slurm" else "native",)
    if request.probe != "ranks":
        return _FEATURES_BY_PROBE.get(request.probe or "", ())
    if request.device == "cuda":
        return ("gpus",)
    if request.launcher == "slurm":
        return ("slurm",)
    own_strategies = _list_own_strategies(request.framework)
    features: list[str] = []
    by_mpi, locally = request.strategy == "mpi", request.launcher == "local"
    if not by_mpi or not own_strategies:
        features += ["ranks", "own_cores", "joining", "fast_network"] if locally else []
        features += ["mpirun", "pmix"] if not locally else []
    if by_mpi:
        features += ["mpich", "fast_mpi"] if locally else ["mpi"]
    return tuple(features)


def format_probe_name(request: Request) -> str | None:
    """Return a readable name of the probe, such as "probe ranks by slurm".

    Returns None if the request is not a probe.
    """
    if request.probe not in ("ranks", "native"):
        return request.probe and f"probe {request.probe.replace('_', ' ')}"
    return f"probe {request.probe} by {request.launcher}"


def probe_variables(request: Request) -> dict[str, str]:
    """Return the environment variables that the probe sets in its worker."""
    tunable = _TUNABLES.get(request.probe or "")
    return {"GLIBC_TUNABLES": tunable} if tunable else {}


def prepare_probe_environment(
    request: Request, framework_adapter: Adapter, framework_environment: Environment, folder: Path
) -> Environment:
    """Return the environment in which the request runs.

    For the probe "modules", this function writes a modulefile to `folder`, loads the module and
    returns the loaded environment. If `framework_environment` uses modules already, or for other
    requests, the result is `framework_environment`. Raises UnavailableError if this machine cannot
    test the probed feature.
    """
    if request.probe == "huge_pages" and not _has_reserved_huge_pages():
        raise UnavailableError("no huge pages are reserved (HugePages_Free is 0)")
    if request.probe != "modules" or framework_environment.kind == "modules":
        return framework_environment
    init = sites.load_site(request.site).modules.init
    module_root = folder / "modules"
    file = module_root / _MODULE
    file.parent.mkdir(parents=True)
    write_file(file, _format_modulefile(request, framework_adapter, framework_environment))
    loaded = modules.load_variables_changed_by_modules(init, (str(module_root),), (_MODULE,))
    name = framework_environment.interpreter.name
    interpreter = modules.find_interpreter(loaded, name)
    if interpreter != framework_environment.interpreter:
        raise UnavailableError(
            f"the probe's module puts a {name} into PATH that is not the environment's"
        )
    return replace(framework_environment, kind="modules", interpreter=interpreter, loaded=loaded)


def _format_modulefile(
    request: Request, framework_adapter: Adapter, framework_environment: Environment
) -> str:
    """Return a modulefile in Tcl, a language that both Lmod and Environment Modules read."""
    variables = {
        name: value for name, value in framework_adapter.environment.variables.items() if value
    }
    filled = {
        name: value.replace("{prefix}", str(framework_environment.prefix))
        for name, value in variables.items()
    }
    lines = [f"prepend-path PATH {{{framework_environment.interpreter.parent}}}"]
    lines += [f"setenv {name} {{{value}}}" for name, value in filled.items()]
    return "\n".join(["#%Module1.0", *lines, ""])


def _has_reserved_huge_pages(file: Path = _MEMORY) -> bool:
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    return any(ln.startswith("HugePages_Free:") and int(ln.split()[1]) for ln in lines)


def build_probe_support(request: Request, reply: Mapping[str, Any]) -> tuple[Support, ...]:
    """Return the support of each probed feature, as the launch's reply shows it.

    Raises KeyError or pydantic's ValidationError if the reply is invalid.
    """
    if request.probe == "native":
        return _build_native_rank_discovery_support(request, reply)
    support = [Support.model_validate(fields) for fields in reply["support"]]
    if request.probe == "modules":
        updates = _format_update_count(reply)
        evidence = f"`module load {_MODULE}` found the interpreter, which trained {updates}"
        support.append(Support(feature="modules", supported="yes", evidence=evidence))
    if request.probe == "ranks":
        support += _build_ranks_probe_support(request, reply)
    return tuple(support)


def support_of_record(record: Record) -> tuple[Support, ...]:
    """Return the support of each probed feature; empty if the record is not a probe's.

    If the probe gave no result, the evidence is the record's reason.
    """
    request = record.request
    if request is None or not request.probe:
        return ()
    if record.support:
        return record.support
    has_device = bool(record.machine and record.machine.accelerators) or request.device == "cpu"
    is_applicable = not (request.probe == "native" and record.status == "unsupported")
    was_tried = record.status != "unavailable" and has_device and is_applicable
    reason = " ".join((record.reason or record.status).split())
    evidence = reason if record.status.startswith("un") else f"{record.status}: {reason}"
    return tuple(
        Support(feature=name, supported="no" if was_tried else "not here", evidence=evidence)
        for name in features_tested_by_probe(request)
    )


def _build_ranks_probe_support(request: Request, reply: Mapping[str, Any]) -> list[Support]:
    places = _read_rank_places(reply)
    parameters_equal = len({place["parameters"] for place in places}) == 1
    ranks_text = f"{len(places)} ranks by {request.strategy_text}"
    training_evidence = (
        f"{ranks_text}: the same parameters after {_format_update_count(reply)}"
        if parameters_equal
        else f"{ranks_text} have different parameters after {_format_update_count(reply)}"
    )
    joined = "yes" if parameters_equal else "no"
    joining_evidence = "; ".join((training_evidence, *reply["observed"].get("exchange", ())[:1]))
    variable_names = sorted({name for place in places for name in place["told_by"]})
    support_by_feature: dict[str, tuple[str, str]] = {
        "ranks": (joined, training_evidence),
        "own_cores": _own_cores_support(places),
        "joining": (joined, joining_evidence),
        "mpich": (joined, f"{training_evidence}; {_format_mpi_libraries(places)}"),
        "mpi": (joined, f"{training_evidence}; {_format_mpi_libraries(places)}"),
        "mpirun": (joined, f"{training_evidence}; {_format_rank_number_source(variable_names)}"),
        "slurm": (joined, f"{training_evidence}; {_format_rank_number_source(variable_names)}"),
        "pmix": _pmix_support(variable_names),
        "fast_network": _fast_network_support(places),
        "fast_mpi": _fast_network_support(places),
        "gpus": (joined, joining_evidence),
    }
    if request.strategy == "mpi":
        loop_evidence = "no strategy of its own: the training loop averaged its gradients by MPI"
        support_by_feature["joining"] = support_by_feature["fast_network"] = ("no", loop_evidence)
    return [
        Support.model_validate({"feature": name, "supported": yes, "evidence": evidence})
        for name in features_tested_by_probe(request)
        for yes, evidence in [support_by_feature[name]]
    ]


def _build_native_rank_discovery_support(
    request: Request, reply: Mapping[str, Any]
) -> tuple[Support, ...]:
    counts = [place["found"] for place in _read_rank_places(reply)]
    rank_message = next((place["said"] for place in _read_rank_places(reply) if place["said"]), "")
    evidence = (
        rank_message
        or f"{len(counts)} ranks were started, and they report {', '.join(map(str, counts))}"
    )
    [feature] = features_tested_by_probe(request)
    supported: Literal["yes", "no"] = "yes" if set(counts) == {request.ranks} else "no"
    return (Support(feature=feature, supported=supported, evidence=evidence),)


def _list_own_strategies(framework: str) -> list[str]:
    """Return the framework's strategies, without "none" and "mpi"."""
    strategies = adapter.load(framework).strategies if framework in adapter.list_names() else ()
    return [name for name in strategies if name not in ("none", "mpi")]


def _format_update_count(reply: Mapping[str, Any]) -> str:
    return f"{_read_rank_places(reply)[0]['updates']} updates"


def _read_rank_places(reply: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the report `place` of each rank, for example its CPUs and mapped MPI libraries.

    The merged reply of several ranks has them in `places`. The reply of a single rank has only
    `place`.
    """
    places: Sequence[Mapping[str, Any]] = reply.get("places") or [reply["place"]]
    return places


def _own_cores_support(places: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return whether each rank kept to its own cores ("yes", "no", "not here"), with evidence."""
    if any(place["own"] is None for place in places):
        return "not here", f"too few CPUs to give each of {len(places)} ranks its own"
    evidence = "; ".join(
        f"rank {number} on CPU {', '.join(map(str, place['cpus']))}"
        for number, place in enumerate(places)
    )
    are_within_own_cores = all(set(place["cpus"]) <= set(place["own"]) for place in places)
    used_cpus = [cpu for place in places for cpu in place["cpus"]]
    return "yes" if are_within_own_cores and len(set(used_cpus)) == len(
        used_cpus
    ) else "no", evidence


def _format_mpi_libraries(places: Sequence[Mapping[str, Any]]) -> str:
    mapped = sorted({name for place in places for name in place["mpi"]})
    return f"mapped: {', '.join(mapped) or 'no libmpi'}"


def _format_rank_number_source(variable_names: Sequence[str]) -> str:
    """Return a sentence that says whose variables set the rank numbers.

    The variables are those of Open MPI, MPICH or Slurm. `variable_names` are the launchers'
    variables that the ranks see.
    """
    family = (
        "Open MPI's"
        if any(name.startswith("OMPI_") for name in variable_names)
        else "MPICH's"
        if "PMI_RANK" in variable_names
        else "Slurm's"
    )
    return f"{family} variables set their rank numbers"


def _pmix_support(variable_names: Sequence[str]) -> tuple[str, str]:
    """Return whether the ranks see PMIx variables ("yes" or "no"), with evidence."""
    pmix_names = [name for name in variable_names if name.startswith("PMIX_")]
    pmix_names.sort(key=lambda name: name not in ("PMIX_RANK", "PMIX_NAMESPACE"))
    pmi_names = [name for name in variable_names if name.startswith("PMI_")]
    if pmix_names:
        return "yes", f"ranks see {', '.join(pmix_names[:3])}"
    return "no", f"ranks see {', '.join(pmi_names[:3]) or 'neither PMIX_ nor PMI_ variables'}"


def _fast_network_support(places: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return whether the ranks mapped libraries for fast networks, with evidence.

    The first value is "yes" or "no". It is "not here" if no rank mapped such a library and no node
    has an InfiniBand device.
    """
    mapped = sorted({name for place in places for name in place["fast"]})
    devices = sorted({name for place in places for name in place["devices"]})
    device_text = (
        f"devices: {', '.join(devices)}" if devices else "no device in /sys/class/infiniband"
    )
    if mapped:
        return "yes", f"the ranks mapped {', '.join(mapped[:4])}; {device_text}"
    evidence = f"the ranks mapped no library for fast networks; {device_text}"
    return ("no" if devices else "not here"), evidence
