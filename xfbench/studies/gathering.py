"""Loading of records and certificates from results folders and archives."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from xfbench.exchange import archive
from xfbench.model import certificate
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.store import index
from xfbench.store.results_folder import Store, WarningHandler, open_existing_store


def load_records_and_certificates(
    folders_and_archives: Sequence[Path], complain: WarningHandler
) -> tuple[list[Record], dict[str, Certificate | str]]:
    """Load all records and certificates from results folders and archives.

    - First value: the records, without duplicates.
    - Second value: the certificates by id. For a certificate that cannot be read, the value is the
      error message.

    `complain` gets one line for each damaged record. Raises UsageError if a folder has no results.
    """
    records: dict[str, Record] = {}
    certificates: dict[str, Certificate | str] = {}
    for source in folders_and_archives:
        if source.is_file():
            with tempfile.TemporaryDirectory(prefix="xfbench-") as folder:
                store = Store(Path(folder))
                archive.import_archive(source, store, complain)
                _add_store(store, records, certificates, complain)
        else:
            _add_store(open_existing_store(source), records, certificates, complain)
    return list(records.values()), certificates


def _add_store(
    store: Store,
    records: dict[str, Record],
    certificates: dict[str, Certificate | str],
    complain: WarningHandler,
) -> None:
    with index.open_index(store, complain) as record_index:
        records.update({record.id: record for _, record in record_index.select()})
        for line in record_index.damaged:
            complain(line)
    certificates.update(certificate.read_certificates(store.folder))
