"""A replacement for NVIDIA's NVML library on machines without a GPU.

It returns recordings of real devices (`worker/nvml/recordings.toml`) or values of a test.
"""

import subprocess
import tomllib
from pathlib import Path

_FOLDER = Path(__file__).parent / "worker" / "nvml"
RECORDINGS = tomllib.loads((_FOLDER / "recordings.toml").read_text())
# A recording's unit in NVML's: MiB in bytes, microseconds in nanoseconds.
_UNITS = {"memory": 2**20, "held": 1000}
# An idle device without problems. The units are NVML's: MHz, degrees Celsius, mW, bytes, mJ,
# percent, bits, nanoseconds.
FREE_DEVICE = {
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
    "uuids": "GPU-1,GPU-2,GPU-3,GPU-4",
    # The launch's process computes on the device from the second reading on.
    "processes": "",
    "processes__2": "self",
}


def build(folder: Path, *options: str) -> Path:
    """Build the library in `folder` under the name that the linker expects; return its file."""
    library = folder / "libnvidia-ml.so.1"
    compile_command = [
        "cc",
        "-shared",
        "-fPIC",
        "-w",
        *options,
        "-o",
        library,
        _FOLDER / "library.c",
    ]
    subprocess.run(compile_command, check=True)
    return library


def write_device(file: Path, **values: object) -> None:
    """Write `FREE_DEVICE` with changed `values`; `clock__2` applies from the second reading on."""
    _write_values(file, {**FREE_DEVICE, **values})


def replay(file: Path, recording: str, **values: object) -> None:
    """Write the recorded values of a device and `values`; other values are not available."""
    recorded = {
        name: value * _UNITS.get(name.split("_")[0], 1)
        for name, value in RECORDINGS[recording].items()
        if name != "source"
    }
    _write_values(file, {"count": 1, **recorded, **values})


def _write_values(file: Path, values: dict[str, object]) -> None:
    lines = [f"{name.replace('__', '@')} {value}\n" for name, value in values.items()]
    file.write_text("".join(lines))
