"""The storage below a folder: mount, file system type and options, and devices.

The facts come from /proc/self/mountinfo and /sys/dev/block. They name no host, user or place:
servers, exports, device labels and paths are left out. Mount options that may contain such names
are left out too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

from xfbench.worker.system_files import read_system_file

_SYS = Path("/sys/dev/block")
_MAX_LAYERS = 4  # maximum depth of file systems that are stored on other file systems

# File systems in this host's memory, and file systems that other hosts provide.
MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
NETWORK = (
    *("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "gpfs", "beegfs", "beegfs_nodev", "afs"),
    *("orangefs", "pvfs2", "panfs", "fhgfs", "wekafs", "dvs", "smbfs"),
    *("fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "fuse.beegfs", "fuse.juicefs", "fuse.dfuse"),
    *("fuse.daos", "fuse.gpfs", "fuse.lustre", "fuse.wekafs", "mmfs", "daos", "vastnfs"),
    *("fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.quobyte", "fuse.mfs", "fuse.cvmfs2"),
    *("fuse.ceph-fuse", "fuse.mountpoint-s3", "fuse.goofys", "fuse.blobfuse", "fuse.blobfuse2"),
    *("smb2", "quobyte", "fuse.curlftpfs", "fuse.davfs", "fuse.moosefs", "fuse.lizardfs"),
)
_COMPRESSING = ("squashfs", "erofs", "zfs")
_HOST = (  # provided by the host of a virtual machine
    *("virtiofs", "9p", "vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs", "drvfs"),
    *("fakeowner", "fuse.grpcfuse", "fuse.osxfs"),  # Docker Desktop
)
_NUMBER = re.compile("[0-9]{1,18}")

# Options that describe how a mount works and cannot contain a name, because each value is a number
# or one of these words.
_PUBLIC_OPTION = re.compile(
    r"""
    ( ro | rw | nosuid | nodev | noexec | (no|rel|strict|nodir|lazy)a?time | (a|dir)?sync
    | data | (no)?(discard|barrier|delalloc) | stripe | commit | journal_(checksum|async_commit)
    | errors | dax | inode(64|32) | logbufs | logbsize | noquota | sunit | swidth | attr2
    | allocsize | norecovery | noload | (no)?ssd | compress(-force)? | space_cache | autodefrag
    | (no)?data(cow|sum) | vers | [rwb]size | namlen | hard | soft | proto | timeo | retrans
    | nconnect | local_lock | sec | (no)?(ac|fsc|cto|intr) | ac(reg|dir)(min|max) | lookupcache
    | (local|no)?flock | (no)?(lruresize|checksum) | user_xattr | lazystatfs | cache | msize | trans
    | size | nr_inodes | nr_blocks | huge | index | metacopy | xino | redirect_dir | volatile
    | max_read | default_permissions | allow_other )
    ( = ( \d[\d.]*[kmgt%]? | 0x[0-9a-f]+ | (zstd|lzo|zlib)(:\d+)? | v[12] | on | off | none | all
    | auto | always | never | ordered | writeback | journal | remount-ro | continue | panic
    | (tcp|udp|rdma)6? | sys | krb5[ip]? | pos(itive)? | advise | within_size | loose | mmap
    | fscache | readahead | virtio | inode ) )?
    """,
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo (proc(5)), with its octal escapes decoded.

    - `number`: the mount's id.
    - `device`: "major:minor" of the file system.
    - `point`: the mount point.
    - `root`: the folder of the file system that is mounted at `point`.
    - `file_system`: the type, such as "ext4".
    - `source`: the device or server.
    - `options`: the options of the mount and of its file system.

    `source` and `options` may name hosts and places. Therefore a record contains a hash of `source`
    at most, and only the options that `public_options` returns.
    """

    number: int
    device: str
    root: str
    point: str
    file_system: str
    source: str
    options: Tuple[str, ...]

    def public_options(self) -> List[str]:
        """Return the options that name no host, user or place, without duplicates."""
        return list(dict.fromkeys(filter(_PUBLIC_OPTION.fullmatch, self.options)))

    @property
    def compresses(self) -> bool:
        """Return whether the file system may compress files."""
        if self.file_system in _COMPRESSING:
            return True
        chosen = (option.partition("=") for option in self.options)
        return any(
            name in ("compress", "compress-force") and value not in ("no", "none")
            for name, _, value in chosen
        )

    def option_value(self, name: str) -> str | None:
        """Return the value of the option `name`, or None if the mount has no such option."""
        pairs = (option.partition("=") for option in self.options)
        return next((value for key, _, value in pairs if key == name), None)


def list_mounts(text: str | None = None) -> List[Mount]:
    """Return the mounts in the kernel's order.

    `text` is parsed as mountinfo. If it is None, this process's mountinfo is read. If that file
    cannot be read, the list is empty.
    """
    if text is None:
        try:
            text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
        except OSError:
            return []
    mounts = (_parse_mount(line) for line in text.split("\n"))
    return [mount for mount in mounts if mount]


def mount_of(path: Path) -> Mount | None:
    """Return the mount that contains `path`, or None if it is unknown.

    Raises OSError if `path` cannot be opened.
    """
    everything = list_mounts()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lines = (read_system_file(Path("/proc/self/fdinfo", str(descriptor))) or "").split("\n")
    finally:
        os.close(descriptor)
    numbers = [int(line.partition(":")[2]) for line in lines if line.startswith("mnt_id:")]
    numbered = [mount for mount in everything if mount.number in numbers[:1]]
    return numbered[0] if numbered else _deepest_mount(everything, path.resolve())


def storage_facts(folder: Path) -> Dict[str, Any]:
    """Return the facts about the storage below `folder`, in the form of a record's `medium`.

    In place of `source_hash`, they have `source`: the name of a network file system, with that of
    its server. For other file systems, it is None. Raises OSError if the folder does not exist or
    is not readable.
    """
    return _storage_facts_to_depth(folder, _MAX_LAYERS)


def mounted_block_device_ids(path: Path) -> List[str]:
    """Return "major:minor" of the block devices whose counters include reads from `path`.

    The list is empty for file systems in memory or on other hosts. Raises OSError if `path` cannot
    be opened.
    """
    mount = mount_of(path)
    if mount is None:
        return []
    device_ids = _block_device_ids_of_mount(mount)
    if device_ids or mount.file_system != "overlay":
        return device_ids
    below = (
        device
        for layer in _overlay_layer_folders(mount, path)
        for device in mounted_block_device_ids(layer)
    )
    return list(dict.fromkeys(below))


def _storage_facts_to_depth(folder: Path, max_layers: int) -> Dict[str, Any]:
    mount, space = mount_of(folder), os.statvfs(folder)
    device_ids = _block_device_ids_of_mount(mount) if mount else []
    below: Dict[Any, Dict[str, Any]] = {}
    if mount and max_layers:
        for layer in _folders_that_store_mount(mount, device_ids, folder):
            layer_mount = mount_of(layer)
            # Do not compare the facts, because the free space changes at any time.
            same = (layer_mount.device, *layer_mount.public_options()) if layer_mount else None
            if same not in below:
                below[same] = _storage_facts_to_depth(layer, max_layers - 1)
    disks = sorted({disk for device in device_ids for disk in _lowest_device_ids(device)})
    turning = {_is_rotational(disk) for disk in disks}
    return {
        "file_system": mount.file_system if mount else "unknown",
        "device": _storage_kind(mount, device_ids),
        "disks": sorted(_device_type(disk) for disk in disks),
        "rotational": turning.pop() if len(turning) == 1 else None,
        "options": mount.public_options() if mount else [],
        "block_bytes": space.f_bsize,
        "total_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
        "source": mount.source if mount and mount.file_system in NETWORK else None,
        "below": list(below.values()),
    }


def _folders_that_store_mount(mount: Mount, device_ids: List[str], folder: Path) -> List[Path]:
    """Return one folder on each visible file system that stores the files of `mount`.

    - Overlay: the folders from which the overlay's layers supply the content of `folder`.
    - Loop devices: the folders of the image files.
    - Other mounts: none.
    """
    if mount.file_system == "overlay":
        return _overlay_layer_folders(mount, folder)
    files = (_read_path(_sys_folder_of_disk(device) / "loop/backing_file") for device in device_ids)
    return [file.parent for file in files if file and file.is_file()]


def _read_path(file: Path) -> Path | None:
    """Return the path that a system file contains. The path may begin or end with white space."""
    try:
        return Path(os.fsdecode(file.read_bytes().rstrip(b"\n")))
    except OSError:
        return None


def _overlay_layer_folders(mount: Mount, path: Path) -> List[Path]:
    """Return the folders from which an overlay's layers supply the content of the folder `path`.

    The folder in the writable layer is the first. The mount options name the layers by their paths.
    The paths are those of the mount namespace in which the overlay was mounted. In this process's
    namespace, a path may not exist or may lead to another folder. Therefore:

    - Paths that do not exist are left out.
    - If the first existing folder and `path` have different modification times, the list is empty.
    """
    relative_path = os.path.relpath(path.resolve(), mount.point)
    if mount.root != "/":
        relative_path = f"{mount.root.strip('/')}/{relative_path}"
    lower = [value for value in (mount.option_value("lowerdir"),) if value]
    lower += [option.partition("=")[2] for option in mount.options if option[:9] == "lowerdir+"]
    named = [mount.option_value("upperdir") or ""]
    named += [path.replace("\\", "") for text in lower for path in re.split(r"(?<!\\):+", text)]
    places = [Path(path, relative_path) for path in named if path.startswith("/")]
    there = [place for place in places if place.exists()]
    if not there or there[0].stat().st_mtime_ns != path.stat().st_mtime_ns:
        return []
    return there


def _storage_kind(mount: Mount | None, device_ids: List[str]) -> str:
    if mount is None:
        return "unknown"
    if mount.file_system in MEMORY:
        return "memory"
    if mount.file_system in NETWORK:
        return "network"
    if mount.file_system in _HOST:
        return "host"
    if mount.file_system == "overlay":
        return "overlay"
    return "+".join(sorted({_device_type(device) for device in device_ids})) or "unknown"


def _block_device_ids_of_mount(mount: Mount) -> List[str]:
    """Return "major:minor" of each block device that stores the file system of `mount`.

    The device number of a file system such as btrfs belongs to no block device. In this case, the
    devices are found through the mount's `source`.
    """
    if (_SYS / mount.device).exists():
        return [mount.device]
    try:
        number = Path(mount.source).stat().st_rdev if mount.source.startswith("/dev/") else 0
    except OSError:
        return []
    named = f"{os.major(number)}:{os.minor(number)}"
    if not number or not (_SYS / named).exists():
        return []
    if mount.file_system == "btrfs":
        for folder in Path("/sys/fs/btrfs").glob("*/devices"):
            parts = [read_system_file(part / "dev") or "" for part in folder.iterdir()]
            if named in parts:
                return sorted(part for part in parts if part)
    return [named]


def _lowest_device_ids(device_id: str) -> List[str]:
    """Return the lowest devices below `device_id`, or `device_id` itself if none is below it."""
    below = sorted((_sys_folder_of_disk(device_id) / "slaves").glob("*/dev"))
    bottom_devices = [
        disk for part in below for disk in _lowest_device_ids(read_system_file(part) or "")
    ]
    return bottom_devices or [device_id]


def _sys_folder_of_disk(device_id: str) -> Path:
    """Return the /sys folder of a device, or of its disk if the device is a partition."""
    folder = (_SYS / device_id).resolve()
    return folder.parent if (folder / "partition").exists() else folder


def _is_rotational(device_id: str) -> bool | None:
    """Return whether the disk rotates.

    Returns None for device types for which the kernel only reports a default.
    """
    if _device_type(device_id) not in ("nvme", "ata", "scsi", "mmc"):
        return None
    return {"0": False, "1": True}.get(
        read_system_file(_sys_folder_of_disk(device_id) / "queue/rotational") or ""
    )


def _device_type(device_id: str) -> str:
    """Return the type of a block device: "nvme", "virtio", "ata", "scsi", "loop", "dm-crypt", …"""
    folder = _sys_folder_of_disk(device_id)
    if folder.name.startswith("dm-"):
        dm_target = (read_system_file(folder / "dm/uuid") or "").partition("-")[0].lower()
        return f"dm-{dm_target}" if dm_target in ("lvm", "crypt", "mpath", "raid") else "dm"
    if folder.name.startswith("md"):
        return f"md-{read_system_file(folder / 'md/level') or 'unknown'}"
    if "/virtual/" in str(folder):
        return re.sub(r"[0-9].*", "", folder.name) or "unknown"
    for part, kind in (
        ("/usb", "usb"),
        ("/ata", "ata"),
        ("/session", "iscsi"),
        ("/virtio", "virtio"),
    ):
        if part in str(folder):
            return kind
    subsystem = folder / "device/subsystem"
    return subsystem.resolve().name if subsystem.exists() else "unknown"


def _parse_mount(line: str) -> Mount | None:
    """Return the mount that a line describes, or None if the line is no mount.

    Only the plain space separates fields: the kernel writes other white space in names as it is.
    """
    before, _, after = line.partition(" - ")
    fields, (file_system, source, of_all) = before.split(" "), [*after.split(" "), "", "", ""][:3]
    if not file_system or len(fields) < 6 or not _NUMBER.fullmatch(fields[0]):
        return None
    number, _, device, root, point, options = fields[:6]
    return Mount(
        number=int(number),
        device=device,
        root=_unescape(root),
        point=_unescape(point),
        file_system=file_system,
        source=_unescape(source),
        options=tuple(_unescape(option) for option in f"{options},{of_all}".split(",") if option),
    )


def _unescape(text: str) -> str:
    """Replace the kernel's octal escapes, such as `\\040` for a space."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _deepest_mount(everything: List[Mount], path: Path) -> Mount | None:
    """Return the mount with the longest mount point above `path`, or None if there is none.

    If several mounts share that mount point, return the last one in `everything`.
    """
    above = [str(path), *map(str, path.parents)]
    over = [mount for mount in everything if mount.point in above]
    return max(over, key=lambda mount: (len(mount.point), everything.index(mount)), default=None)
