"""Unpacking of Debian packages into a private folder, the prefix, without root.

- A lock names the packages with their versions and digests.
- `apt-get` runs with its own lists, cache, status and sources, and `dpkg` only unpacks. So the
  machine's package state is neither read nor changed.
- The packages come from the mirrors in the machine's apt settings. Their Debian release may differ
  from the machine's release.

`python -m xfbench.environments.debian SUITE PACKAGE...` prints a lock.
"""

from __future__ import annotations

import email
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from xfbench.base import processes, tool_output
from xfbench.base.errors import UnavailableError
from xfbench.base.process_variables import Purpose, select_variables
from xfbench.base.shared_files import write_file

Apt = Callable[..., str]

_ARCHITECTURE = "amd64"
_MIRROR_VARIABLE = "XFBENCH_DEBIAN_MIRROR"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Packages of which the host's version is used. A second C library would not start.
_LEFT_OUT = frozenset({"libc6", "libc-bin", "dpkg", "apt", "base-files"})
_SUITES = re.compile(
    r"(old)*stable|testing|unstable|sid|buster|bullseye|bookworm|trixie|forky|duke"
)
_BATCH = 12


@dataclass(frozen=True)
class Package:
    """One package of a lock. `sha256` is the digest of its archive, in hexadecimal digits."""

    name: str
    version: str
    sha256: str


def create_prefix(lock: Path, suite: str, prefix: Path, say: Callable[[str], None]) -> None:
    """Download the packages of `lock`, verify their digests, and unpack them below `prefix`.

    - `suite`: the Debian release, for example "bullseye".
    - `say`: receives progress lines such as "downloading 37/150".

    Raises UnavailableError if a tool or a mirror is missing, a download fails, or a digest differs.
    After an error, the caller must remove the incomplete prefix.
    """
    packages = read_lock(lock)
    archives = prefix / ".archives"
    archives.mkdir(parents=True, exist_ok=True)
    say(f"reading the package list of Debian {suite}")
    apt = _create_private_apt(suite, prefix / ".apt")
    for start in range(0, len(packages), _BATCH):
        say(f"downloading {start + 1}/{len(packages)}")
        batch = packages[start : start + _BATCH]
        try:
            apt("download", *(f"{p.name}={p.version}" for p in batch), cwd=archives)
        except processes.CommandError as error:
            raise UnavailableError(_explain_download_failure(error, batch, suite, lock)) from error
    say(f"unpacking {len(packages)} packages")
    for package in packages:
        unpack_package(_find_verified_archive(package, archives, lock), prefix)
    _remove_setuid_bits(prefix)
    shutil.rmtree(archives)
    shutil.rmtree(prefix / ".apt")


def build_lock_text(packages: Sequence[str], suite: str) -> str:
    """Return the text of a lock with `packages` and all packages that they depend on.

    - `suite`: the Debian release. The lock has the versions that this release has now.
    - The C library and the packaging tools are left out, because the host has them.

    Raises UnavailableError if no mirror answers or a package is unknown.
    """
    with tempfile.TemporaryDirectory(prefix="xfbench-") as folder:
        apt = _create_private_apt(suite, Path(folder))
        try:
            answer = apt("install", "--yes", "--no-install-recommends", "--print-uris", *packages)
        except processes.CommandError as error:
            raise UnavailableError(f"Debian {suite}: {error}") from error
    lock_lines = []
    for match in re.finditer(r"^'\S+' (\S+)_(\S+)_\S+\.deb \d+ SHA256:(\w{64})$", answer, re.M):
        package = Package(match[1], unquote(match[2]), match[3])
        if package.name not in _LEFT_OUT:
            lock_lines.append(f"{package.name}={package.version} sha256:{package.sha256}")
    made_by = f"# python -m xfbench.environments.debian {suite} {' '.join(packages)}"
    return "\n".join([made_by, *sorted(lock_lines)]) + "\n"


def read_lock(lock: Path) -> list[Package]:
    """Return the packages in a lock file. Raises UnavailableError if a line is invalid."""
    packages = []
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z0-9][a-z0-9+.-]+)=(\S+) sha256:([0-9a-f]{64})", line.strip())
        if match is None:
            raise UnavailableError(f"{lock}:{number}: write NAME=VERSION sha256:DIGEST")
        packages.append(Package(*match.groups()))
    return packages


def unpack_package(archive: Path, prefix: Path) -> None:
    """Unpack the files of one package below `prefix`. Raises UnavailableError if dpkg fails."""
    try:
        processes.output(["dpkg", "-x", str(archive), str(prefix)], timeout=600)
    except processes.CommandError as error:
        raise UnavailableError(f"dpkg could not unpack {archive.name}: {error}") from error


def list_override_or_apt_mirrors(apt_folder: Path = Path("/etc/apt")) -> list[str]:
    """Return the addresses of mirrors of Debian's main archive.

    If the variable `XFBENCH_DEBIAN_MIRROR` is set, its address is the only one. Otherwise the
    addresses come from apt's settings in `apt_folder`, in both formats of sources.list(5). Entries
    for security updates, and entries with the signing key of another archive, are skipped.
    """
    if chosen := os.environ.get(_MIRROR_VARIABLE):
        return [chosen]
    files = [apt_folder / "sources.list", *sorted((apt_folder / "sources.list.d").glob("*"))]
    addresses: dict[str, None] = {}
    for file in files:
        if file.is_file() and file.suffix in {".list", ".sources"}:
            text = file.read_text(encoding="utf-8", errors="replace")
            addresses.update(
                dict.fromkeys(
                    _parse_one_line_mirrors(text)
                    if file.suffix == ".list"
                    else _parse_deb822_mirrors(text)
                )
            )
    return list(addresses)


def _parse_one_line_mirrors(text: str) -> Iterator[str]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line)
        if match and _is_debian_main_archive([match[3]], match[4].split(), match[1] or ""):
            yield match[2]


def _parse_deb822_mirrors(text: str) -> Iterator[str]:
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", plain.strip()):
        fields = email.message_from_string(stanza)
        suites, components = fields.get("Suites", "").split(), fields.get("Components", "").split()
        if (
            "deb" in fields.get("Types", "").split()
            and fields.get("Enabled", "yes").strip().lower() not in {"no", "false", "0"}
            and _is_debian_main_archive(
                suites, components, f"signed-by={fields.get('Signed-By', '')}"
            )
        ):
            yield from fields.get("URIs", "").split()


def _is_debian_main_archive(suites: Sequence[str], components: Sequence[str], options: str) -> bool:
    signer = re.search(r"signed-by=\s*(\S+)", options, re.I)
    return (
        "main" in components
        and any(_SUITES.fullmatch(suite.strip("/")) for suite in suites)
        and (signer is None or "debian-archive" in signer[1])
    )


def _create_private_apt(suite: str, folder: Path) -> Apt:
    """Return a function that runs `apt-get` with the first mirror that has `suite`.

    All state of `apt-get` is in `folder`. Raises UnavailableError if a tool is missing, the
    machine has another architecture, or no mirror has the suite.
    """
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise UnavailableError(
                f"{program} was not found, but unpacking Debian packages needs it: install it, or "
                "name an interpreter that has the framework with --python"
            )
    printed = processes.output(["dpkg", "--print-architecture"], timeout=60)
    architecture = ", ".join(tool_output.find_matching_lines(printed, r"[a-z0-9][a-z0-9-]+"))
    if architecture != _ARCHITECTURE:
        raise UnavailableError(
            f"the pinned Debian packages are for {_ARCHITECTURE}, but this machine is "
            f"{architecture}: "
            "name an interpreter that has the framework with --python"
        )
    candidates = list_override_or_apt_mirrors()
    if not candidates:
        raise UnavailableError(
            f"apt's settings have no Debian mirror: set {_MIRROR_VARIABLE} to the address of one"
        )
    last: Exception | None = None
    for mirror in candidates:
        apt = _configure_apt_in_emptied_folder(suite, mirror, folder)
        try:
            apt("update")
        except processes.CommandError as error:
            last = error
            continue
        if any((folder / "lists").glob("*_Packages*")):
            return apt
    raise UnavailableError(
        f"no mirror of Debian {suite} answered: set {_MIRROR_VARIABLE} to the address of one"
        + (f" ({last})" if last else "")
    ) from last


def _configure_apt_in_emptied_folder(suite: str, mirror: str, folder: Path) -> Apt:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("lists", "cache", "state"):
        (folder / name).mkdir(parents=True)
    write_file(folder / "status", "")
    signed = f" signed-by={_KEYRING}" if _KEYRING.exists() else ""
    write_file(
        folder / "sources.list",
        f"deb [arch={_ARCHITECTURE} lang=none target=Packages{signed}] {mirror} {suite} main\n",
    )
    # apt reads this file after the machine's settings. The machine's proxies and certificates are
    # needed, but its hooks would act on the machine.
    write_file(
        folder / "apt.conf",
        f"""#clear APT::Update;
#clear APT::Architectures;
#clear DPkg;
APT::Architecture "{_ARCHITECTURE}";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::ForceHash "SHA256";
Acquire::Retries "3";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{folder}/state";
Dir::State::Lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
""",
    )

    def run_apt(*arguments: str, cwd: Path | None = None) -> str:
        return processes.output(
            ["apt-get", "--config-file", str(folder / "apt.conf"), "--quiet", *arguments],
            environment={**select_variables(Purpose.PROGRAM), "LC_ALL": "C"},
            cwd=cwd,
            timeout=1800,
        )

    return run_apt


def _remove_setuid_bits(prefix: Path) -> None:
    """Remove the setuid and setgid bits of all files below `prefix`."""
    for file in prefix.rglob("*"):
        mode = file.lstat().st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            file.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _find_verified_archive(package: Package, archives: Path, lock: Path) -> Path:
    quoted = package.version.replace(":", "%3a")
    for archive in archives.glob(f"{package.name}_{quoted}_*.deb"):
        if hashlib.sha256(archive.read_bytes()).hexdigest() == package.sha256:
            return archive
    raise UnavailableError(
        f"{package.name} {package.version} is not the package pinned in {lock}: its sha256 differs"
    )


def _explain_download_failure(
    error: Exception, batch: Sequence[Package], suite: str, lock: Path
) -> str:
    for package in batch:
        if re.search(
            rf"Version '{re.escape(package.version)}' for '{re.escape(package.name)}' was not found"
            rf"|Unable to locate package {re.escape(package.name)}\b",
            str(error),
        ):
            return (
                f"Debian {suite} no longer has {package.name} {package.version}: "
                f"create {lock} again with the command in its first line"
            )
    return f"a package of Debian {suite} could not be downloaded: {error}"


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m xfbench.environments.debian SUITE PACKAGE...")
    sys.stdout.write(build_lock_text(sys.argv[2:], sys.argv[1]))
