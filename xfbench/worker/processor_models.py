"""The model of this host's processor, from the forms that /proc/cpuinfo has by architecture.

Each architecture has its own field names (arch/*/kernel in Linux). ARM has only numbers. Their
names are those of util-linux's `lscpu`. Names in a product, such as Grace or Graviton, are not in
the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict

from xfbench.worker.system_files import read_system_file

# Fields that hold a model: x86 and s390x under KVM, LoongArch, MIPS, and POWER and SPARC.
_MODEL_FIELDS = ("model name", "Model Name", "cpu model", "cpu")
# What kernels write if they do not know the model, or the name of an architecture instead.
_NO_MODEL = re.compile(
    r"|-|unknown|n/?a|none|ARMv\d.*|AArch64.*|rev \d.*|[\da-f]+/[\da-f]+", re.IGNORECASE
)
_ARM_VENDORS = {
    **{0x41: "ARM", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon"},
    **{0x4E: "NVIDIA", 0x50: "APM", 0x51: "Qualcomm", 0x61: "Apple", 0x6D: "Microsoft"},
    **{0x70: "Phytium", 0xC0: "Ampere"},
}
_ARM_PARTS = {
    **{(0x41, 0xD03): "Cortex-A53", (0x41, 0xD05): "Cortex-A55", (0x41, 0xD07): "Cortex-A57"},
    **{(0x41, 0xD08): "Cortex-A72", (0x41, 0xD09): "Cortex-A73", (0x41, 0xD0A): "Cortex-A75"},
    **{(0x41, 0xD0B): "Cortex-A76", (0x41, 0xD0D): "Cortex-A77", (0x41, 0xD41): "Cortex-A78"},
    **{(0x41, 0xD42): "Cortex-A78AE", (0x41, 0xD44): "Cortex-X1", (0x41, 0xD4B): "Cortex-A78C"},
    **{(0x41, 0xD0C): "Neoverse-N1", (0x41, 0xD49): "Neoverse-N2", (0x41, 0xD8E): "Neoverse-N3"},
    **{(0x41, 0xD40): "Neoverse-V1", (0x41, 0xD4F): "Neoverse-V2", (0x41, 0xD84): "Neoverse-V3"},
    **{(0x41, 0xD4A): "Neoverse-E1", (0x42, 0x516): "ThunderX2", (0x43, 0x0A1): "ThunderX"},
    **{(0x43, 0x0AF): "ThunderX2", (0x43, 0x0B8): "ThunderX3", (0x46, 0x001): "A64FX"},
    **{(0x48, 0xD01): "TaiShan-v110", (0x48, 0xD02): "TaiShan-v120", (0x4E, 0x004): "Carmel"},
    **{(0x50, 0x000): "X-Gene", (0x51, 0xC00): "Falkor", (0xC0, 0xAC3): "Ampere-1"},
    **{(0xC0, 0xAC4): "Ampere-1a", (0x70, 0x662): "FTC662", (0x70, 0x663): "FTC663"},
    **{(0x41, 0xD04): "Cortex-A35", (0x41, 0xD46): "Cortex-A510", (0x41, 0xD47): "Cortex-A710"},
    **{(0x41, 0xD48): "Cortex-X2", (0x41, 0xD4D): "Cortex-A715", (0x41, 0xD4E): "Cortex-X3"},
    **{(0x41, 0xD80): "Cortex-A520", (0x41, 0xD81): "Cortex-A720", (0x41, 0xD82): "Cortex-X4"},
    **{(0x41, 0xD85): "Cortex-X925", (0x41, 0xD87): "Cortex-A725", (0x6D, 0xD49): "Cobalt-100"},
    **{(0x61, 0x022): "Icestorm-M1", (0x61, 0x023): "Firestorm-M1"},
}
_MAX_KINDS = 4  # of cores in one processor
_MAINFRAMES = {
    **{"2097": "z10 EC", "2098": "z10 BC", "2817": "z196", "2818": "z114", "2827": "zEC12"},
    **{"2828": "zBC12", "2964": "z13", "2965": "z13s", "3906": "z14", "3907": "z14 ZR1"},
    **{"8561": "z15", "8562": "z15 T02", "3931": "z16", "3932": "z16 A02", "9175": "z17"},
}


def read_processor_fields(file: Path = Path("/proc/cpuinfo")) -> Dict[str, str]:
    """Return the fields of the first processor, and those of the whole machine, by name.

    Blocks of lines may describe the machine before or after the processors. Of fields that several
    processors have, the first counts. Only "CPU part" has all values, with commas between them,
    because the cores of an ARM processor may be of different kinds.
    """
    fields: Dict[str, str] = {}
    parts: Dict[str, None] = {}
    for line in (read_system_file(file) or "").split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
            if name.strip() == "CPU part":
                parts[value.strip()] = None
    return {**fields, "CPU part": ",".join(parts)} if parts else fields


def find_model(fields: Dict[str, str]) -> str | None:
    """Return the processor's model, or what is known of it. None if nothing is known.

    `fields` are the fields of /proc/cpuinfo, as `read_processor_fields` returns them.
    """
    for name in _MODEL_FIELDS:
        model = fields.get(name, "").partition(", altivec")[0]
        if not _NO_MODEL.fullmatch(model):
            return model
    return (
        _find_arm_model(fields)
        or _find_mainframe(fields)
        or _find_risc_v_model(fields)
        or _find_x86_numbers(fields)
    )


def _find_arm_model(fields: Dict[str, str]) -> str | None:
    """Return the name of the numbers that ARM processors have, or the numbers themselves."""
    texts = fields.get("CPU implementer", ""), *fields.get("CPU part", "").split(",")
    if not all(re.fullmatch("0x[0-9a-fA-F]{1,8}", text) for text in texts):
        return None
    vendor, *parts = (int(text, 16) for text in texts)
    names = (_ARM_PARTS.get((vendor, part), f"part {part:#05x}") for part in parts[:_MAX_KINDS])
    return f"{_ARM_VENDORS.get(vendor, f'ARM implementer {vendor:#04x}')} {' + '.join(names)}"


def _find_mainframe(fields: Dict[str, str]) -> str | None:
    """Return the machine type of s390x: "processor 0: version = FF, …, machine = 3906"."""
    if "S390" not in fields.get("vendor_id", ""):
        return None
    processors = (value for name, value in fields.items() if name.startswith("processor "))
    number = re.search(r"machine = (\w+)", " ".join(processors))
    if not number:
        return None
    name = _MAINFRAMES.get(number[1])
    return f"IBM {name} ({number[1]})" if name else f"IBM machine {number[1]}"


def _find_risc_v_model(fields: Dict[str, str]) -> str | None:
    if "isa" not in fields or "hart" not in fields:
        return None
    numbers = [fields.get(name, "") for name in ("mvendorid", "marchid")]
    vendor_and_core = f"RISC-V vendor {numbers[0]} core {numbers[1]}" if all(numbers) else ""
    return fields.get("uarch") or vendor_and_core or f"RISC-V {fields['isa']}"


def _find_x86_numbers(fields: Dict[str, str]) -> str | None:
    """Return the vendor, family and model number of a virtual machine that hides its model."""
    numbers = [fields.get(name, "") for name in ("vendor_id", "cpu family", "model")]
    return f"{numbers[0]} family {numbers[1]} model {numbers[2]}" if all(numbers) else None
