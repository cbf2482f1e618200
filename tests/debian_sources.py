"""Write xfbench/environments/debian_sources.toml: the source packages of all Debian locks.

python -m tests.debian_sources

Advisories of Debian name source packages. Run this after a Debian lock has changed.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from xfbench.environments import audit, debian

FILE = audit._SOURCES
HEAD = "# Made by: python -m tests.debian_sources\n"


def list_debian_locks():
    """Return the locks of Debian packages, by the suite that the first line names."""
    locks = {}
    for lock in audit.list_locks():
        if match := re.match(r"# python -m xfbench\.environments\.debian (\w+) ", lock.read_text()):
            locks.setdefault(match[1], []).append(lock)
    return locks


def find_sources(suite, packages):
    """Return "SOURCE", or "SOURCE VERSION" if it has another version, by package."""
    with tempfile.TemporaryDirectory() as folder:
        debian._create_private_apt(suite, Path(folder))
        apt_cache = ["apt-cache", "--config-file", f"{folder}/apt.conf", "show"]
        names = [f"{package.name}={package.version}" for package in packages]
        text = subprocess.run(
            [*apt_cache, *names], capture_output=True, text=True, check=True
        ).stdout
    sources = {}
    for stanza in text.strip().split("\n\n"):
        fields = dict(re.findall(r"^(Package|Source): (.*)$", stanza, re.M))
        source = fields.get("Source", fields["Package"])
        sources[fields["Package"]] = re.sub(r"[()]", "", source)
    return sources


def build_text():
    """Return the text of the file for all Debian locks."""
    lines = [HEAD]
    for suite, locks in sorted(list_debian_locks().items()):
        packages = [package for lock in locks for package in debian.read_lock(lock)]
        sources = find_sources(suite, packages)
        lines.append(f"\n[{suite}]\n")
        lines += [f'"{name}" = "{source}"\n' for name, source in sorted(sources.items())]
    return "".join(lines)


if __name__ == "__main__":
    FILE.write_text(build_text())
