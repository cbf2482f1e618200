"""Write a kit for a machine with a GPU: `python -m tests.measuring.kit build/gpu-kit`."""

import argparse
import shutil
import time
from pathlib import Path

from tests.measuring.kit.cells import SIZES
from tests.measuring.kit.writing import write_kit


def main() -> None:
    """Write the kit, and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="gpu")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s {line}", flush=True)

    write_kit(arguments.folder, SIZES[arguments.size], say)
    size = sum(file.stat().st_size for file in arguments.folder.rglob("*") if file.is_file())
    say(f"{arguments.folder}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
