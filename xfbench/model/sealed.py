"""Documents that are named by their content: whoever edits one, breaks its name."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict

from xfbench.base import digests

MAX_DOCUMENT_BYTES = 64 * 2**20  # bytes: who sends a longer document does not send one of these


def utc_now() -> str:
    """The time as documents have it: RFC 3339, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EditedError(ValueError):
    """A document whose content is not what its id says."""


def verify_id(content: bytes) -> str:
    """The id of the document that `content` is. Raises EditedError, or ValueError for none."""
    return _verify_id_fast(content) or _verify_id_exactly(content)


def _verify_id_fast(content: bytes) -> str | None:
    """The id where it certainly fits, found five times as fast as with care."""
    try:
        document = orjson.loads(content)
        stated_id = document.pop("id")
        canonical_bytes = digests.fast_canonical_form(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return (
        str(stated_id)
        if canonical_bytes is not None and digests.of_bytes(canonical_bytes) == stated_id
        else None
    )


def _verify_id_exactly(content: bytes) -> str:
    try:
        document = json.loads(content)
        stated_id = document.pop("id")
        if digests.canonical_form_if(document, stated_id) is None:
            raise EditedError("its content is not what its id says")
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no document with an id: {error!r}") from error
    return str(stated_id)


class DocumentPart(BaseModel):
    """What such documents consist of: never changed, of known fields, of numbers that JSON has."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SealedDocument(BaseModel):
    """A document whose `id` is the digest of everything else in it, by the schema's names."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False
    )

    id: str
    created: str

    @classmethod
    def make(cls, **fields: Any) -> Self:
        """One of now, with its id computed. Raises pydantic's ValidationError."""
        draft = cls(id="sha256:" + "0" * 64, **{"created": utc_now(), **fields})
        return draft.model_copy(update={"id": draft.computed_id()})

    @classmethod
    def read(cls, content: bytes) -> Self:
        """The document that `content` is, the JSON that was once written.

        The id is that of what stands there, not of what this version makes of it: a document
        written before a field was added, or by a later version that has more of them, is as
        good as ever. Raises ValidationError for what is none, EditedError for what was edited.
        """
        parsed = cls.model_validate_json(content, extra="ignore")
        verify_id(content)
        return parsed

    def computed_id(self) -> str:
        """What `id` has to be."""
        document = self.document()
        del document["id"]
        return digests.of_json(document)

    def document(self) -> dict[str, Any]:
        """As JSON values, by the schema's names."""
        return self.model_dump(mode="json", by_alias=True)
