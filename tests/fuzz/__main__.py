"""Looks for files that a reader cannot bear, led by what of its code they reach (atheris).

python -m tests.fuzz TARGET SECONDS FOLDER [SEED]

In FOLDER are what was tried and reached more, and findings. With a SEED it is the same every time.
"""

import resource
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["xfbench"]):
    from tests.fuzz.targets import FINDINGS_FOLDER, TARGETS

MAX_SECONDS, MAX_BYTES = 10, 1_500_000_000  # of one file


def main():
    """Ends with a status other than 0 where there is a finding, which lies in the folder."""
    name, seconds, folder_name, *fixed_seeds = sys.argv[1:]
    target, folder = TARGETS[name], Path(folder_name)
    corpus = folder / "tried"
    corpus.mkdir(parents=True, exist_ok=True)
    earlier_findings = [path.read_bytes() for path in sorted(FINDINGS_FOLDER.glob(f"{name}/*"))]
    for number, seed in enumerate([*target.seeds, *earlier_findings]):
        (corpus / f"seed-{number}").write_bytes(seed)
    # Its own limit is of what the system says of the process, which may be of its parent.
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    limits = [f"-max_total_time={seconds}", f"-timeout={MAX_SECONDS}", "-rss_limit_mb=0"]
    limits += [f"-seed={number}" for number in fixed_seeds]
    arguments = [sys.argv[0], *limits, "-max_len=65536", f"-artifact_prefix={folder}/", str(corpus)]
    atheris.Setup(arguments, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
