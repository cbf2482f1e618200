"""Looks for files that a reader cannot bear, led by what of its code they reach (atheris).

python -m tests.fuzz TARGET SECONDS FOLDER   (FOLDER: what was tried and reached more, and findings)
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["xfbench"]):
    from tests.fuzz.targets import TARGETS

MOST_SECONDS, MOST_MEGABYTES = 10, 1500  # of one file


def main():
    """Ends with a status other than 0 where there is a finding, which lies in the folder."""
    name, seconds, place = sys.argv[1:]
    target, folder = TARGETS[name], Path(place)
    tried = folder / "tried"
    tried.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (tried / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={seconds}", f"-timeout={MOST_SECONDS}"]
    limits += [f"-rss_limit_mb={MOST_MEGABYTES}", "-max_len=65536"]
    words = [sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(tried)]
    atheris.Setup(words, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
