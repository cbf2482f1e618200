"""Models of processors, from the forms that /proc/cpuinfo has by architecture."""

import pytest

from xfbench.worker import host, processor_models

ARM = "processor\t: 0\nCPU implementer\t: {}\nCPU part\t: {}\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("", None),
        ("\n\nprocessor\t: 0\n", None),
        ("model name\t: AMD EPYC 9654\nmodel name\t: another", "AMD EPYC 9654"),
        (ARM.format("0x41", "0xd0c"), "ARM Neoverse-N1"),
        (ARM.format("0xc0", "0xac3"), "Ampere Ampere-1"),
        (ARM.format("0x41", "0xfff"), "ARM part 0xfff"),
        (ARM.format("0x99", "0x1"), "ARM implementer 0x99 part 0x001"),
        (ARM.format("65", "0xd0c"), None),
        (
            2 * ARM.format("0x41", "0xd05") + ARM.format("0x41", "0xd0b"),
            "ARM Cortex-A55 + Cortex-A76",
        ),
        ("model name\t: ARMv8 Processor rev 0 (v8l)\n" + ARM.format("0x46", "1"), None),
        ("model name\t: ARMv8 Processor rev 0\n" + ARM.format("0x46", "0x001"), "Fujitsu A64FX"),
        (
            "processor\t: 0\ncpu\t: POWER10 (architected), altivec supported\n",
            "POWER10 (architected)",
        ),
        (
            "system type\t: generic\n\nprocessor\t: 0\nModel Name\t: Loongson-3A5000\n",
            "Loongson-3A5000",
        ),
        ("system type\t: x\nprocessor\t: 0\ncpu model\t: MIPS 1004Kc V2.12\n", "MIPS 1004Kc V2.12"),
        ("vendor_id : IBM/S390\nprocessor 0: version = FF,  machine = 3931\n", "IBM z16 (3931)"),
        ("vendor_id : IBM/S390\nprocessor 0: version = FF,  machine = 9999\n", "IBM machine 9999"),
        (
            "hart\t: 0\nisa\t: rv64imafdcv\nmvendorid\t: 0x5b7\nmarchid\t: 0x0\n",
            "RISC-V vendor 0x5b7 core 0x0",
        ),
        ("hart\t: 0\nisa\t: rv64imafdc\n", "RISC-V rv64imafdc"),
        ("hart\t: 0\nisa\t: rv64\nuarch\t: a,b1\nmvendorid\t: 0x1\nmarchid\t: 0x2\n", "a,b1"),
        (
            "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 1\nmodel name\t: unknown\n",
            "AuthenticAMD family 25 model 1",
        ),
        (
            "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t: 85\nmodel name\t: 06/55\n",
            "GenuineIntel family 6 model 85",
        ),
        ("model name\t: Common KVM processor\n", "Common KVM processor"),
    ],
)
def test_model_is_read_in_the_form_of_its_architecture(tmp_path, text, model):
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    assert processor_models.find_model(processor_models.read_processor_fields(file)) == model


@pytest.mark.parametrize("text", ["", "MemTotal:\n", "MemTotal: many kB\n"])
def test_memory_of_unknown_size_is_no_bug(monkeypatch, text):
    monkeypatch.setattr(host, "read_system_file", lambda path: text)
    assert host._memory_bytes() == 0
