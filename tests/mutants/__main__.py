"""Change one line of the source at a time, and report which changes no test notices.

python -m tests.mutants            draw 20 mutations and try them; takes hours
python -m tests.mutants --list     draw them and print them
python -m tests.mutants --only 7   try one of them again
python -m tests.mutants --seed 3   draw and try 20 others

`trying.py` says how each is isolated. A mutation can change `.venv` and other files outside of the
checkout, so use a disposable machine.
"""

import argparse
import json
import shlex
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from tabulate import tabulate

from tests.mutants import trying
from tests.mutants.drawing import SEED, draw


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--seed", type=int, default=SEED, help="of the draw (default: %(default)s)")
    parser.add_argument("--count", type=int, default=20, help="mutations (default: %(default)s)")
    parser.add_argument("--only", type=int, help="number of a single mutation to try")
    parser.add_argument(
        "--limit", type=int, default=trying.LIMIT_S, help="seconds for each command"
    )
    parser.add_argument("--list", action="store_true", help="print the mutations, try none")
    parser.add_argument("--json", type=Path, help="file for mutations and verdicts")
    parser.add_argument(
        "--command",
        default=trying.COMMAND,
        help="command after the module's own tests; empty for none (default: the quick tests)",
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that running commands are killed
    rows, documents = [], []
    if not options.list and (obstacle := trying.find_obstacle()):
        parser.error(obstacle)
    for number, mutation in enumerate(draw(options.seed, options.count), 1):
        if options.only not in (None, number):
            continue
        mirrored = trying.list_tests(mutation.path)
        commands = [[*trying.PYTEST, *mirrored]] if mirrored else []
        commands += [shlex.split(options.command)] if options.command else []
        verdict = None if options.list else trying.try_mutation(mutation, commands, options.limit)
        document = {"number": number, **asdict(mutation), **(asdict(verdict) if verdict else {})}
        del document["source"]
        documents.append(document)
        place, change = (
            f"{mutation.path}:{mutation.line}",
            f"{mutation.before}\n-> {mutation.after}",
        )
        rows.append([number, place, mutation.kind, change])
        if verdict:
            caught = verdict.status == "caught"
            result = verdict.test if caught else f"{verdict.status.upper()} {verdict.test}"
            rows[-1] += [result, verdict.seconds]
            print(number, place, result, f"{verdict.seconds} s", file=sys.stderr, flush=True)
    titles = ["", "place", "kind", "mutation", "caught by", "s"]
    print(tabulate(rows, titles[: 4 if options.list else 6], tablefmt="simple"))
    if options.json:
        options.json.write_text(json.dumps(documents, indent=1) + "\n")
    return int(
        any(document.get("status") != "caught" for document in documents if not options.list)
    )


if __name__ == "__main__":
    sys.exit(main())
