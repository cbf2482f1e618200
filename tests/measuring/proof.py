"""What the proof of a timed batch costs, in training steps: `python -m tests.measuring.proof`.

A benchmark, not a test. For each cell of the experiment `quick`, one process of the framework
trains some steps and then runs the cases of the proof, with the same trainers as `verify`. Neither
the start of the process nor the import of the framework counts. Compiling is timed apart: it is
what the first step of a trainer takes longer than the others. The reference is computed before,
since it is stored; the comparison with it is timed apart too. All times are CPU seconds of all
threads, because other work on the machine lengthens them least.
"""

import json
import tempfile
import time
from pathlib import Path

from tests.measuring import inside
from xfbench.environments import environment
from xfbench.equality import certify, jobs, timed_batch, verify
from xfbench.host import machine
from xfbench.model import adapter
from xfbench.planning import plan_builder

STEPS, REPETITIONS = 10, 3


def main() -> None:
    """Measure, and print a line of a table for each cell."""
    host = machine.describe_machine()
    print(f"{host.cores} cores {host.cpu_model}\n")
    print("| cell | batch | 10 steps | compiling | proof | comparison | proof in steps |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for request in {each.label(): each for each in plan_builder.build_plan({}).requests}.values():
        repetitions = [measure(request) for _ in range(REPETITIONS)]
        # The first one may compute what is stored of the reference.
        measured = {name: min(each[name] for each in repetitions) for name in repetitions[0]}
        measured["proof"] -= measured["compiling"]
        steps = STEPS * measured["proof"] / measured["steps"]
        print(
            f"| {request.framework} {measured['version']}, {request.workload} "
            f"| {request.batch_size_per_rank} | {measured['steps']:.3f} s "
            f"| {measured['compiling']:.3f} s "
            f"| {measured['proof']:.3f} s | {measured['comparison']:.3f} s | {steps:.0f} |",
            flush=True,
        )


def measure(request) -> dict:
    """Return the CPU seconds of ten steps, and of the parts of the proof."""
    found = environment.ensure_environment(adapter.load(request.framework))
    measured = {"version": found.version, "compiling": 0.0, "proof": 0.0, "run": 0.0}

    def run(documents, single_rank, workload, framework_adapter, of_framework, inputs_file, _limit):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            job = jobs.copy_inputs_and_build_job(
                documents, single_rank, workload, inputs_file, folder
            )
            paths = {"folder": str(folder), "steps": STEPS, "size": request.batch_size_per_rank}
            (folder / "measured.json").write_text(json.dumps({**job, **paths}))
            started = time.process_time()
            reply = inside.run_script(
                "proof_steps.py",
                request.framework,
                request.threads,
                folder / "measured.json",
                kernel=request.kernel,
            )
            measured["run"] += time.process_time() - started
            measured["steps"] = reply.pop("steps_s")
            for name in ("compiling", "proof"):
                measured[name] += reply.pop(f"{name}_s")
            return jobs.read_results(documents, single_rank, {"status": "ok", **reply}, folder)

    size, verifier = request.batch_size_per_rank, verify.Verifier(run=run)
    single_rank = certify.single_rank_request(request)
    started = time.process_time()
    verdict = timed_batch.verify_batch_sizes(verifier, single_rank, found, [size], 0)[size]
    measured["comparison"] = time.process_time() - started - measured.pop("run")
    assert verdict.verdict == "equal", verdict
    return measured


if __name__ == "__main__":
    main()
