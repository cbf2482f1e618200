"""Errors with a message for the user: what is wrong, where, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from rapidfuzz.distance import DamerauLevenshtein

# Errors of a disk, a quota or a limit of the system, not defects of xfbench.
_SYSTEM_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE),
    *(errno.ENOMEM, errno.EACCES, errno.EPERM, errno.ENOLCK),
    # A network file system has lost its server, or a file there.
    *(errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.EHOSTDOWN, errno.ENOTCONN),
    errno.ESHUTDOWN,
}

_MAX_TYPING_ERRORS = 2
_MAX_LISTED, _NEAREST = 50, 8


class XfbenchError(Exception):
    """An error that the user sees as one or two lines, without a traceback."""

    exit_status = 1


class UsageError(XfbenchError):
    """An error in the command line or in a file that the user wrote."""

    exit_status = 2


class NoMatchError(UsageError):
    """The error that no record meets the conditions of a command."""

    exit_status = 1


class UnavailableError(XfbenchError):
    """The error that something is unavailable on this machine, such as a framework.

    The message says why, and what to do instead.
    """


def disk_or_limit_error_message(error: OSError) -> str | None:
    """Return the message for an error of a disk, a quota or a limit of the system.

    Returns None for any other error.
    """
    if error.errno not in _SYSTEM_ERRNOS:
        return None
    return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}"


def unknown_name_error(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """Return the error for a `name` that is not one of `choices`.

    - The message suggests the choice that differs by the fewest typing errors, two at most. If
      there is none, it lists all choices, or the nearest ones of more than fifty.
    - `kind` says what is named, for example "framework".
    """
    candidates = sorted(choices)
    distances = {candidate: _count_typing_errors(name, candidate) for candidate in candidates}
    nearest = min(candidates, key=lambda candidate: distances[candidate], default="")
    if len(candidates) > _MAX_LISTED:
        nearest_names = sorted(candidates, key=lambda candidate: distances[candidate])
        listing = f"there are {len(candidates)}, such as {', '.join(nearest_names[:_NEAREST])}"
    else:
        listing = f"choose from {', '.join(candidates)}" if candidates else "there are none"
    hint = f"did you mean {nearest}?" if nearest and is_near(name, nearest) else listing
    return UsageError(f"unknown {kind} {name!r}: {hint}")


def is_near(name: str, candidate: str) -> bool:
    """Return whether `name` differs from the candidate by two typing errors at most."""
    max_errors = min(_MAX_TYPING_ERRORS, len(candidate) // 2)
    return _count_typing_errors(name, candidate) <= max_errors


def _count_typing_errors(name: str, candidate: str) -> int:
    return DamerauLevenshtein.distance(name.lower(), candidate.lower())
