"""Select the cells to verify, and format verdicts for people and for machines.

An answer is the object that `verify --json` prints for a cell. It describes a new verdict or the
verdict in an existing certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.equality import certify
from xfbench.equality.jobs import CheckError
from xfbench.equality.verify import Verdict, Verifier
from xfbench.model import adapter
from xfbench.model.certificate import Certificate, CertifiedFields, batch_certified_fields
from xfbench.model.request import Request
from xfbench.model.strategy import format_options
from xfbench.planning import experiment
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads

FORMATS = ("text", "markdown")


def build_requests(
    frameworks: Sequence[str],
    networks: Sequence[str],
    kernels: Sequence[str],
    python_overrides: Mapping[str, Path],
    **settings: Any,
) -> list[Request]:
    """Return the requests to verify, ordered by workload.

    - `networks`: names of workloads; ["all"] selects all workloads
    - `kernels`: names of kernels; "all" selects all kernels of each framework
    - `python_overrides`: interpreters by framework; a framework without an entry gets its default
      environment
    - `settings`: further settings of `build_matrix`

    Raises UsageError if a name is wrong.
    """
    workload_names = list(workloads())
    cells = [
        cell
        for name in frameworks
        for cell, _ in experiment.expand_matrices(
            [
                experiment.build_matrix(
                    framework=[name],
                    workload=workload_names if list(networks) == ["all"] else networks,
                    kernel=kernels,
                    **settings,
                )
            ],
            python_overrides,
        )
    ]
    cells.sort(key=lambda cell: workload_names.index(cell.workload))
    return [cell.request(1) for cell in cells]


def request_title(request: Request) -> str:
    """Return one line that says what the request verifies."""
    parts = [request.framework, request.workload, request.kernel]
    strategy_parts = [f"{request.ranks} ranks {request.strategy_text}"] if request.ranks > 1 else []
    solver_parts = filter(None, [request.changed_solver_text])
    return " · ".join([*parts, *solver_parts, *strategy_parts, request.device, request.precision])


def verify_requests(
    requests: Sequence[Request],
    python_overrides: Mapping[str, Path],
    seed_count: int,
    ignore_certificates: bool,
    time_limit: float,
    say: Callable[[str], None],
    store: Store | None = None,
    batch_sizes: Sequence[int] = (),
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each request as soon as the answer is known.

    If a cell has a certificate of "equal", the certificate is the answer. If the certificate says
    "different", the cell is verified again to find where it differs and by how much.

    - `python_overrides`: interpreters by framework; a framework without an entry gets its default
      environment
    - `seed_count`: number of seeds; if there are several, existing certificates are ignored
    - `ignore_certificates`: whether cells with a certificate are verified again
    - `time_limit`: seconds for one launch
    - `say`: is called with each progress message
    - `store`: results folder to which the certificates are copied; they cover its earlier launches
    - `batch_sizes`: numbers of images per rank. If a cell is equal, the gradients of these batches
      are verified too.
    """
    verifier = Verifier(say, time_limit)

    def verify_batches(
        request: Request, framework_environment: environment.Environment
    ) -> dict[str, Any]:
        batches = _verify_batches(
            verifier,
            request,
            framework_environment,
            batch_sizes,
            store,
            again=ignore_certificates,
        )
        return {"timed_batches": batches}

    for request in requests:
        framework_adapter = adapter.load(request.framework)
        try:
            framework_environment = environment.ensure_environment(
                framework_adapter, python_overrides.get(request.framework), say, request.site
            )
        except UnavailableError as error:
            yield _unsupported_answer(request, str(error), failed=True)
            continue
        cached = (
            None
            if ignore_certificates or seed_count > 1
            else certify.find_cached_certificate(
                certify.build_subject(request, framework_environment)
            )
        )
        if cached and cached.verdict == "equal":
            if store:
                certify.copy_cached_certificate(cached, store)
            known_answer = _answer_from_certificate(request, cached)
            yield known_answer | verify_batches(request, framework_environment)
            continue
        try:
            answer = None
            for seed in range(seed_count):
                verdict = certify.verify_after_single_rank(
                    verifier, request, framework_environment, seed
                )
                if seed == 0 or verdict.verdict == "different":
                    certificate = certify.store_verdict_unless_unsupported(
                        verdict, framework_environment, seed
                    )
                    if certificate and store:
                        certify.copy_cached_certificate(certificate, store)
                    answer = _answer_from_verdict(
                        verdict, certificate, framework_environment.version
                    )
                if verdict.verdict != "equal":
                    break
            assert answer is not None
            if answer["verdict"] == "equal":
                answer |= verify_batches(request, framework_environment)
            yield answer
        except CheckError as error:
            yield _unsupported_answer(request, str(error), failed=True)


def _verify_batches(
    verifier: Verifier,
    request: Request,
    framework_environment: environment.Environment,
    batch_sizes: Sequence[int],
    store: Store | None,
    *,
    again: bool,
) -> list[dict[str, Any]]:
    """Verify the gradients of these batches, and return an object for each of them."""
    group = [
        request.model_copy(
            update={"batch_size_per_rank": size, "global_batch_size": size * request.ranks}
        )
        for size in batch_sizes
    ]
    objects = []
    unproven: dict[CertifiedFields, str] = {}
    certified = [
        pair
        for requests in certify.group_by_process(group)
        for pair in certify.certify_timed_batches(
            verifier,
            requests,
            framework_environment,
            lambda _: None,  # the objects say it
            again=again,
            unproven=unproven,
        )
    ]
    for verified, certificate in certified:
        if store:
            certify.copy_cached_certificate(certificate, store)
        objects.append(
            {
                "batch_size": verified.batch_size_per_rank,
                "threads": verified.threads,
                "verdict": certificate.verdict,
                "reason": certificate.finding,
                "certificate": certificate.id,
                "checks": [check.model_dump() for check in certificate.checks],
            }
        )
    for each in group:
        if reason := unproven.get(batch_certified_fields(each)):
            unverified = {"verdict": "unsupported", "reason": reason}
            size = each.batch_size_per_rank
            objects.append({"batch_size": size, "threads": each.threads, **unverified})
    return objects


def format_answer_text(answer: Mapping[str, Any]) -> str:
    """Format one answer for a terminal."""
    name = f"{answer['framework']} {answer['framework_version'] or ''}".strip()
    field_names = ("workload", "solver", "kernel", "device", "precision")
    parts = [name, *(answer[k] for k in field_names if answer[k])]
    if answer["ranks"] > 1:
        option_words = format_options(answer["strategy_options"].items())
        parts.append(f"{answer['ranks']} ranks {answer['strategy']} {option_words}".rstrip())
    lines = [f"{' · '.join(parts):<61} {_verdict_word(answer)}"]
    worst = answer["worst"]
    if answer["verdict"] == "different":
        if worst:
            quantity = " ".join(filter(None, [worst["quantity"], worst["name"]]))
            step = f", step {worst['step']}" if worst["step"] else ""
            error = worst["relative_error"]
            error_words = (
                "missing or not finite" if error is None else f"relative error {error:.1e}"
            )
            lines.append(
                f"  worst tensor         {quantity}, {error_words} "
                f"(rounding allows {worst['tolerance']:.0e}){step}"
            )
        if answer["first_layer"]:
            lines.append(f"  goes wrong first at  {answer['first_layer']}")
        if answer["likely_cause"]:
            lines.append(f"  looks like           {answer['likely_cause']}")
    if answer["reason"] and answer["reason"] != answer["likely_cause"]:
        lines.append(f"  {answer['reason']}")
    if answer["verdict"] == "equal" and answer["checks"]:
        quantities = sum(check["quantities"] for check in answer["checks"])
        # In certificates of earlier versions null stands for no deviation at all.
        nearest = max(check["excess"] or 0.0 for check in answer["checks"])
        lines.append(f"  {quantities} quantities, at most {nearest:.0%} of their tolerance")
    lines += map(_format_timed_batch, answer["timed_batches"])
    return "\n".join(lines)


def _format_timed_batch(batch: Mapping[str, Any]) -> str:
    name = f"  batch {batch['batch_size']}, {batch['threads']} threads: {batch['verdict']}"
    if batch["verdict"] != "equal":
        return f"{name}, {batch['reason']}"
    nearest = max(check["excess"] or 0.0 for check in batch["checks"])
    return f"{name}, at most {nearest:.0%} of its tolerance"


def format_answers_markdown(answers: Sequence[Mapping[str, Any]]) -> str:
    """Format answers as a Markdown table for the docs, with a line for each kind of check."""
    lines = []
    for answer in answers:
        network = " · ".join(filter(None, (answer["workload"], answer["solver"])))
        head = [network, f"{answer['framework']} {answer['framework_version'] or ''}"]
        head += [answer["kernel"], _verdict_word(answer)]
        for check in answer["checks"] or [None]:
            if check is None:
                lines.append([*head, answer["reason"] or "", "", "", "", ""])
                continue
            lines.append(
                [
                    *head,
                    check["kind"],
                    str(check["quantities"]),
                    f"{check['tolerance']:.0e}",
                    f"{check['loosest']:.0e}",
                    "∞" if check["excess"] is None else f"{check['excess']:.2g}",
                ]
            )
            head = [""] * 4
    headers = ["network", "framework", "kernel", "verdict", "check", "quantities"]
    headers += ["tolerance (median)", "loosest", "largest error / tolerance"]
    return tabulate(lines, headers, "github", disable_numparse=True)


def _verdict_word(answer: Mapping[str, Any]) -> str:
    """Return the verdict for a person: a framework that failed is not an unsupported one."""
    return "failed" if answer["failed"] else str(answer["verdict"])


def format_self_test(result: Mapping[str, Any]) -> str:
    """Format the result of `plants.run_self_test` for a terminal."""
    lines = [
        [
            outcome["name"],
            f"{outcome['framework']}, {outcome['workload']}",
            "caught" if outcome["caught"] else "MISSED",
            outcome["layer"],
            outcome["first_layer"] or "–",
        ]
        for outcome in result["planted"]
    ]
    caught = sum(outcome["caught"] for outcome in result["planted"])
    located = sum(outcome["located"] for outcome in result["planted"])
    alarms = result["false_alarms"]
    return (
        tabulate(lines, ["planted", "in", "", "at", "found at"], disable_numparse=True)
        + f"\n{caught} of {len(lines)} caught, {located} at their layer; "
        f"{alarms['alarms']} false alarms in {alarms['trials']} trials"
    )


def _answer_from_verdict(
    verdict: Verdict, certificate: Certificate | None, version: str
) -> dict[str, Any]:
    equal = certificate is not None and verdict.verdict == "equal"
    document = verdict.document(certificate.id if certificate and equal else None)
    return {**document, "framework_version": version, "failed": False, "timed_batches": []}


def _answer_from_certificate(request: Request, certificate: Certificate) -> dict[str, Any]:
    """Return the answer that corresponds to a certificate of "equal"."""
    answer = Verdict(request, certificate.verdict, checks=certificate.checks).document(
        certificate.id
    )
    return {**answer, "framework_version": certificate.framework_version, "failed": False}


def _unsupported_answer(request: Request, reason: str, *, failed: bool) -> dict[str, Any]:
    answer = Verdict(request, "unsupported", reason).document(None)
    return {**answer, "framework_version": None, "failed": failed, "timed_batches": []}
