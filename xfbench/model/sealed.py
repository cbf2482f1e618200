"""Documents whose id is a digest of their content: an edited document does not match its id."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict

from xfbench.base import digests
from xfbench.model import privacy

MAX_DOCUMENT_BYTES = 64 * 2**20  # no valid document is longer


def utc_now() -> str:
    """Return the current time as documents store it: RFC 3339, in UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EditedError(ValueError):
    """Error for a document whose content does not match its id."""


def verify_id(content: bytes) -> str:
    """Return the id of the document in `content`.

    Raises EditedError if the id does not match the content, and ValueError if `content` is not a
    document with an id.
    """
    return _verify_id_fast(content) or _verify_id_exactly(content)


def _verify_id_fast(content: bytes) -> str | None:
    """Return the document's id if this check proves that it matches. Otherwise return None.

    This check is five times as fast as the exact check, which decides if the result is None.
    """
    try:
        document = orjson.loads(content)
        stated_id = document.pop("id")
        canonical_bytes = digests.likely_canonical_form(document)
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
            raise EditedError("its content does not match its id")
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a document with an id: {error!r}") from error
    return str(stated_id)


class DocumentPart(BaseModel):
    """A part of a sealed document: immutable, without unknown fields or infinite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SealedDocument(BaseModel):
    """A document whose `id` is the digest of the JSON form of all its other fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False
    )

    id: str
    created: str

    @classmethod
    def make(cls, **fields: Any) -> Self:
        """Return a document with these fields, the current time in `created`, and its computed id.

        Private names are removed from its texts (`privacy.py`). Raises pydantic's ValidationError
        if the fields are invalid.
        """
        draft = cls(id="sha256:" + "0" * 64, **{"created": utc_now(), **fields})
        document = draft.document()
        private = privacy.make_private(document)
        if private != document:
            draft = cls.model_validate_json(json.dumps(private))
        del private["id"]
        return draft.model_copy(update={"id": digests.of_json(private)})

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Parse a document and verify its id. `content` is the JSON text as it was written.

        The id covers exactly the fields in the text, including fields that this version does not
        know. Therefore documents of earlier versions, which have fewer fields, stay valid.
        Documents of later versions, which have more fields, are valid too.

        Raises ValidationError if the fields are invalid, and EditedError if the document was
        edited.
        """
        parsed = cls.model_validate_json(content, extra="ignore")
        verify_id(content)
        return parsed

    def computed_id(self) -> str:
        """Return the digest of all fields except `id`: the id that the document must have."""
        document = self.document()
        del document["id"]
        return digests.of_json(document)

    def document(self) -> dict[str, Any]:
        """Return the document as JSON values. The keys are the fields' names in JSON."""
        return self.model_dump(mode="json", by_alias=True)
