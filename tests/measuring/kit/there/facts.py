"""Write what the machine and its GPU say about themselves: `python facts.py`.

Files: machine.txt (commands and their output), nvml.json (what NVML answers, raw and as xfbench
reads it) and reply.json. NVML is only read, and nothing is set.
"""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

COMMANDS = ("nvidia-smi", "nvidia-smi -q", "lscpu", "nproc", "free -g", "uname -a", "ulimit -a")
# Functions of NVML that fill in one unsigned integer, with their further arguments.
NUMBERS = {
    "nvmlDeviceGetClockInfo": (0, 1, 2),
    "nvmlDeviceGetMaxClockInfo": (0, 1, 2),
    "nvmlDeviceGetApplicationsClock": (1, 2),
    "nvmlDeviceGetTemperature": (0,),
    "nvmlDeviceGetTemperatureThreshold": (0, 1),
    "nvmlDeviceGetPowerUsage": (),
    "nvmlDeviceGetEnforcedPowerLimit": (),
    "nvmlDeviceGetPowerManagementLimit": (),
    "nvmlDeviceGetPowerManagementDefaultLimit": (),
    "nvmlDeviceGetPersistenceMode": (),
    "nvmlDeviceGetComputeMode": (),
    "nvmlDeviceGetPerformanceState": (),
    "nvmlDeviceGetCurrPcieLinkGeneration": (),
    "nvmlDeviceGetCurrPcieLinkWidth": (),
    "nvmlDeviceGetNumGpuCores": (),
    "nvmlDeviceGetMemoryBusWidth": (),
}
LONG_NUMBERS = (
    *("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    "nvmlDeviceGetSupportedClocksThrottleReasons",
)
PAIRS = ("nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetCudaComputeCapability")


def run_commands():
    """Return the output of the commands, without serial numbers and identities of devices."""
    parts = []
    for command in COMMANDS:
        completed = subprocess.run(
            command,
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        parts.append(f"$ {command}\n{completed.stdout.decode(errors='replace')}")
    text = "\n".join(parts)
    return re.sub(r"(?im)^(.*(serial|uuid)[^:\n]*:).*$", r"\1 left out", text)


def read_nvml():
    """Return NVML's answers about the first device: the value, or the error's number."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if error := nvml.nvmlInit_v2():
        raise OSError(f"nvmlInit_v2 fails with error {error}")
    device, answers = ctypes.c_void_p(), {}
    if error := nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        raise OSError(f"there is no device: error {error}")

    def ask(name, outputs, *arguments):
        function = getattr(nvml, name, None)
        if function is None:
            return "missing"
        error = function(device, *arguments, *map(ctypes.byref, outputs))
        values = [each.value for each in outputs]
        return {"error": error} if error else values[0] if len(values) == 1 else values

    for name, kinds in NUMBERS.items():
        for kind in kinds or (None,):
            arguments = [] if kind is None else [kind]
            label = name if kind is None else f"{name}({kind})"
            answers[label] = ask(name, [ctypes.c_uint()], *arguments)
    for name in LONG_NUMBERS:
        answers[name] = ask(name, [ctypes.c_ulonglong()])
    for name in PAIRS:
        answers[name] = ask(name, [ctypes.c_int(), ctypes.c_int()])
    return answers


def main():
    Path("machine.txt").write_text(run_commands())
    sys.path.insert(0, str(Path(os.environ["KIT"], "workers", "torch.pyz")))
    try:
        raw = read_nvml()
        from xfbench.worker import nvml

        device = nvml.find_rank_device(0)
        if device is None:
            raise OSError("CUDA_VISIBLE_DEVICES hides every device")
        state = nvml.read_device_state(device)
        answers = {"raw": raw, "state": state, "settings": nvml.read_settings(device)}
        Path("nvml.json").write_text(json.dumps(answers, indent=1))
        name, driver = state["name"], state["driver"]
        reply = {"status": "ok", "reason": None, "summary": f"{name}, driver {driver}"}
    except OSError as error:
        reply = {"status": "unavailable", "reason": f"NVML: {error}"}
    Path("reply.json").write_text(json.dumps(reply))


main()
