"""Errors with a message for the user: what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

# Errors of a disk, a quota or a limit of the system, not defects of xfbench.
_SYSTEM_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}


class XfbenchError(Exception):
    """An error that the user sees as one or two lines, without a traceback."""

    exit_status = 1


class UsageError(XfbenchError):
    """An error in the command line or in a file that the user wrote."""

    exit_status = 2


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

    - The message suggests the most similar choice. If none is similar, it lists all choices.
    - `kind` says what is named, for example "framework".
    """
    candidates = sorted(choices)
    close_matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    listing = f"choose from {', '.join(candidates)}" if candidates else "there are none"
    hint = f"did you mean {close_matches[0]}?" if close_matches else listing
    return UsageError(f"unknown {kind} {name!r}: {hint}")
