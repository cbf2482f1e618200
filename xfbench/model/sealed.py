"""Documents whose id is a digest of their content: an edited document does not match its id."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict

from xfbench.base import digests, strict_json
from xfbench.model import privacy

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z", re.ASCII)
MAX_DOCUMENT_BYTES = 64 * 2**20  # no valid document is longer


def utc_now() -> str:
    """Return the current time as documents store it: RFC 3339, in UTC, with milliseconds."""
    return _format_time(datetime.now(UTC))


def _format_time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_time(text: str) -> str:
    """Return a time if it is one as documents store it, from 1970 to 2099.

    Raises ValueError if it is not. Texts of such times sort by time.
    """
    if not _TIME.fullmatch(text) or not "1970" <= text[:4] <= "2099":
        raise ValueError("expected a time in UTC from 1970 to 2099, like 2026-11-30T09:00:00.000Z")
    datetime.fromisoformat(text)
    return text


def latest_credible_time() -> str:
    """Return the time until which a document may have been created: a clock may be a day fast."""
    return _format_time(datetime.now(UTC) + timedelta(days=1))


def future_error(created: str) -> str | None:
    """Return why a time of creation cannot be right: it is in the future. None if it is not."""
    return f"created in the future, {created}" if created > latest_credible_time() else None


def age_key(document: SealedDocument) -> tuple[bool, str, str]:
    """Return the key that sorts documents by age, the oldest first.

    A document of the future counts as the oldest, so that no date makes it the newest.
    """
    return document.created <= latest_credible_time(), document.created, document.id


class EditedError(ValueError):
    """Error for a document whose content does not match its id."""


def verify_id(content: bytes) -> str:
    """Return the id of the document in `content`.

    Raises EditedError if the id does not match the content, and ValueError if `content` is not a
    document with an id, or has a key twice.
    """
    try:
        document = strict_json.parse(content, parse_constant=strict_json.refuse_constant)
        stated_id = document.pop("id")
        if digests.canonical_form_if(document, stated_id) is None:
            raise EditedError("its content does not match its id")
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a document with an id: {error!r}") from error
    return str(stated_id)


class DocumentPart(BaseModel):
    """A part of a sealed document: immutable, without unknown fields or infinite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Time = Annotated[str, AfterValidator(check_time)]


class SealedDocument(BaseModel):
    """A document whose `id` is the digest of the JSON form of all its other fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False
    )

    id: str
    created: Time

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

        Raises ValidationError if the fields are invalid, EditedError if the document was edited,
        and ValueError if a key occurs twice.
        """
        strict_json.check_size(content)
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
