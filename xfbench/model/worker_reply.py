"""Reads a worker's reply and rejects what is not a complete reply to its job.

A worker runs foreign code, so its reply is not trusted. A reply is JSON of limited length in a
plain file, names the job, and has a reason of one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xfbench.base import safe_read

LONGEST = 2**28  # bytes: the steps of some millions
_STATUSES = ("ok", "failed", "unsupported", "unavailable")
_LONGEST_REASON = 500
_LARGEST = 2**53 - 1
# What reading, or making something of, a document that may be anything can raise.
WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class ReplyError(ValueError):
    """There is no valid reply to this job."""


class MissingError(ReplyError):
    """There is no reply file."""


class ForeignError(ReplyError):
    """The reply is to another job."""


def read(path: Path, job: str) -> dict[str, Any]:
    """Read the reply in `path` to the job with this digest. Raises ReplyError."""
    try:
        content = safe_read.read_bytes(path, LONGEST)
        answer = json.loads(content, parse_int=_figure)
    except OSError as error:
        raise MissingError("no reply") from error
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the reply is not whole ({_line(str(error))})") from error
    if not isinstance(answer, dict) or not _is_text(answer, content):
        raise ReplyError("the reply is not whole (it is no object of texts and numbers)")
    if answer.get("job") != job:
        if "job" in answer:
            raise ForeignError("the reply answers another request")
        raise ReplyError("the reply is not whole (it names no job)")
    reason = answer.get("reason")
    if answer.get("status") not in _STATUSES or not isinstance(reason, str | None):
        raise ReplyError("the reply is not whole (status or reason)")
    return {**answer, "reason": reason and _line(reason)}


def _figure(text: str) -> int:
    """A whole number that records can hold: RFC 8785 has none that a float64 has not."""
    if len(text) > len(str(_LARGEST)) + 1 or abs(int(text)) > _LARGEST:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _is_text(answer: dict[str, Any], content: bytes) -> bool:
    """Whether it can be written again: half a character, spelled out, cannot."""
    if b"\\ud" not in content.lower():
        return True
    try:
        json.dumps(answer, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _line(text: str) -> str:
    return " ".join(text[: 4 * _LONGEST_REASON].split())[:_LONGEST_REASON]
