"""Reads a worker's reply, and rejects everything that is not a valid reply to the job.

A worker runs foreign code, so its reply is not trusted. A valid reply is JSON of limited length in
a regular file, and contains the job's digest. The reply's `reason` is shortened to one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xfbench.base import safe_read, strict_json

LONGEST = 2**28  # bytes: enough for millions of steps
_MAX_VALUES = 16_000_000
_STATUSES = ("ok", "failed", "unsupported", "unavailable")
_LONGEST_REASON = 500
_LARGEST = 2**53 - 1
# Exceptions that reading or using an untrusted document can raise.
WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class ReplyError(ValueError):
    """Error: there is no valid reply to the job."""


class MissingError(ReplyError):
    """Error: there is no reply file."""


class ForeignError(ReplyError):
    """Error: the reply belongs to another job."""


def read_reply(path: Path, job_digest: str) -> dict[str, Any]:
    """Return the reply to the job with this digest. `path` is the reply file.

    Raises ReplyError if there is no valid reply to the job.
    """
    try:
        content = safe_read.read_bytes(path, LONGEST)
        answer = strict_json.parse(content, parse_int=_parse_exact_integer, max_values=_MAX_VALUES)
    except OSError as error:
        raise MissingError("no reply") from error
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the reply is malformed ({_shorten_to_one_line(str(error))})") from error
    if not isinstance(answer, dict) or not _is_utf8_encodable(answer, content):
        raise ReplyError("the reply is malformed (it is not a JSON object that UTF-8 can encode)")
    if answer.get("job") != job_digest:
        if "job" in answer:
            raise ForeignError("the reply belongs to another job")
        raise ReplyError("the reply is malformed (it has no job)")
    reason = answer.get("reason")
    if answer.get("status") not in _STATUSES or not isinstance(reason, str | None):
        raise ReplyError("the reply is malformed (invalid status or reason)")
    return {**answer, "reason": reason and _shorten_to_one_line(reason)}


def _parse_exact_integer(text: str) -> int:
    """Return the integer in `text`.

    Raises ValueError if a float64 cannot represent the integer exactly, as RFC 8785 requires.
    """
    if len(text) > len(str(_LARGEST)) + 1 or abs(int(text)) > _LARGEST:
        raise ValueError(f"an integer is too large: it has {len(text)} digits")
    return int(text)


def _is_utf8_encodable(answer: dict[str, Any], content: bytes) -> bool:
    """Return whether UTF-8 can encode the answer: it has no text with a lone surrogate.

    `content` is the JSON text of the answer.
    """
    if b"\\ud" not in content.lower():
        return True
    try:
        json.dumps(answer, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _shorten_to_one_line(text: str) -> str:
    return " ".join(text[: 4 * _LONGEST_REASON].split())[:_LONGEST_REASON]
