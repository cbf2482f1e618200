"""Copies of records, certificates and searches for other people: without private names.

xfbench removes private names when it makes a document. Documents of earlier versions may still have
some. A copy that lacks them has another content, and therefore another id. Documents that name no
one are copied as they are.

The results folder remembers the ids of changed copies (`xfbench/store/copies.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from xfbench.base import digests, private_names, safe_read, strict_json
from xfbench.model import privacy
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.model.sealed import MAX_DOCUMENT_BYTES
from xfbench.store import copies, pack
from xfbench.store.results_folder import Place, Store, WarningHandler


class PrivateCopies:
    """Copies of the documents of one results folder, which is `source`.

    `warn` gets a message for each name in the settings of records. These names stay, because they
    identify cells: the person who measured chose them.
    """

    def __init__(self, source: Store, warn: WarningHandler) -> None:
        self._source, self._warn = source, warn
        self._names = private_names.known_names([source.folder])
        self._certificate_ids: dict[str, str] = {}
        self._original_by_copy: dict[str, str] = {}
        self._warned: set[tuple[str, str]] = set()

    def copy_record(self, place: Place, record: Record) -> tuple[Record, bytes]:
        """Return the record without private names, and the content of its file."""
        content = place.content()
        document = strict_json.parse(content)
        for path, text in privacy.names_in_settings(document, self._names):
            if (path, text) not in self._warned:
                self._warned.add((path, text))
                self._warn(f"{path} is {text!r}, which names you: it is part of the settings")
        changes = {
            name: self._copy_certificate(document[name])[0]
            for name in ("certificate", "batch_certificate")
            if document.get(name)
        }
        private = {**privacy.make_private(document, self._names), **changes}
        if private != document:
            content = self._seal(private)
            return Record.read(content), content
        if place.length is not None:
            content = pack.to_record_file_content(content)
        return record, content

    def copy_certificate(self, certificate_id: str) -> tuple[str, bytes]:
        """Return id and content of the certificate without private names."""
        new_id, content = self._copy_certificate(certificate_id)
        return new_id, content or self._read_certificate(certificate_id)

    def copy_certificates(self, certificate_ids: Iterable[str]) -> list[tuple[Certificate, bytes]]:
        """Return each certificate without private names, and the content of its file."""
        contents = [self.copy_certificate(each)[1] for each in certificate_ids]
        return [(Certificate.read(content), content) for content in contents]

    def copy_search(self, content: bytes) -> tuple[str, bytes]:
        """Return id and content of the search without private names.

        Call it after `copy_record` for all records of the search.
        """
        document = strict_json.parse(content)
        new_ids = {original: copy for copy, original in self._original_by_copy.items()}
        private = privacy.make_private(document, self._names)
        if "records" in private:
            private["records"] = [new_ids.get(each, each) for each in private["records"]]
        if private == document:
            return str(document["id"]), content
        sealed = self._seal(private)
        return str(private["id"]), sealed

    def remember(self) -> None:
        """Write the ids of changed copies to the results folder, if it can be written."""
        if self._original_by_copy:
            copies.remember_originals(self._source, self._original_by_copy)

    def _copy_certificate(self, certificate_id: str) -> tuple[str, bytes]:
        """Return the id of the copy, and its content; empty if the copy is the original."""
        if self._certificate_ids.get(certificate_id) == certificate_id:
            return certificate_id, b""
        try:
            document = strict_json.parse(self._read_certificate(certificate_id))
            private = privacy.make_private(document, self._names)
        except (OSError, ValueError, RecursionError):  # missing or damaged
            private = document = {}
        if private == document:
            self._certificate_ids[certificate_id] = certificate_id
            return certificate_id, b""
        sealed = self._seal(private)
        self._certificate_ids[certificate_id] = str(private["id"])
        return str(private["id"]), sealed

    def _read_certificate(self, certificate_id: str) -> bytes:
        path = self._source.certificate_path(certificate_id)
        return safe_read.read_bytes(path, MAX_DOCUMENT_BYTES, follow_link=True)

    def _seal(self, private: dict[str, Any]) -> bytes:
        """Give the changed document its id, remember it, and return the content of its file."""
        original = private.pop("id")
        private["id"] = digests.of_json(private)
        self._original_by_copy[private["id"]] = original
        return (json.dumps(private, indent=1, ensure_ascii=False) + "\n").encode()
