"""Write golden files: `python -m tests.golden [NAME...]`, all of them without a name.

Digests of workloads, and the cells and keys of old records, never change: a file that says
otherwise is refused. To add a workload or an archive, write its new file.

The name `self_test` runs every bug planted in an adapter for real, which takes hours: only the
planted bugs that are not in the file yet, so that it can be interrupted.
"""

import sys

from tests import golden
from tests.golden import planted_bugs


def main(prefixes: list[str]) -> int:
    """Write the files whose names begin with one of the words; return the exit status."""
    names = [name for name in golden.SUBJECTS if not prefixes or name.startswith(tuple(prefixes))]
    if golden.SELF_TEST in prefixes:
        planted_bugs.run_missing()
    elif not names:
        print(f"no golden file begins with {' or '.join(prefixes)}", file=sys.stderr)
        return 2
    refused = False
    for name in names:
        file, text = golden.path(name), golden.build(name)
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        if file.exists() and name.startswith(("keys/", "workloads/")):
            print(f"{name} must never change: the code is wrong", file=sys.stderr)
            refused = True
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(f"{file.relative_to(golden.FOLDER)} changed")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
