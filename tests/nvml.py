"""A library that answers as NVIDIA's NVML does, with values of the tests' own: there is no GPU."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "worker" / "nvml" / "library.c"
# A device that is free, and had nothing to complain of. Values as NVML gives them: MHz, degrees
# Celsius, mW, bytes, mJ, percent, bits, nanoseconds.
FREE = {
    "count": 1,
    "name": "a GPU",
    "driver": "555.55",
    "clock": 1410,
    "most_clock": 1410,
    "temperature": 61,
    "power_limit": 400_000,
    "memory_total": 40 * 2**30,
    "memory_used": 3 * 2**30,
    "busy": 0,
    "reasons": 1,
    "energy": 5_000_000,
    "held_0": 10**9,
    "held_1": 0,
}


def build(folder: Path) -> Path:
    """The library in `folder`, under the name that the linker looks for."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, SOURCE], check=True)
    return library


def tell(file: Path, **values: object) -> None:
    """Have it say what `FREE` does but for `values`; `clock__2`: from the second reading on."""
    told = {**FREE, **{name.replace("__", "@"): value for name, value in values.items()}}
    file.write_text("".join(f"{name} {value}\n" for name, value in told.items()))
