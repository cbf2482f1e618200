"""Loading of records and certificates from results folders and archives."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xfbench.base.errors import NoMatchError
from xfbench.exchange import archive
from xfbench.model import certificate
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.store import index
from xfbench.store.results_folder import Store, WarningHandler, open_existing_store
from xfbench.store.selection import Condition


@dataclass(frozen=True)
class Gathered:
    """The content of results folders and archives.

    - `records`: the chosen records without duplicates.
    - `by_source`: the chosen records of each folder or archive.
    - `certificates`: the certificates by id. For a certificate that cannot be read, the value is
      the error message.
    """

    records: list[Record]
    by_source: dict[Path, list[Record]]
    certificates: dict[str, Certificate | str]


def load_records_and_certificates(
    folders_and_archives: Sequence[Path],
    complain: WarningHandler,
    conditions: Sequence[Condition] = (),
) -> Gathered:
    """Load the certificates and the records that meet all `conditions`.

    `complain` gets one line for each damaged record. Raises UsageError if a folder has no results,
    and NoMatchError if no record meets the conditions.
    """
    by_source: dict[Path, list[Record]] = {}
    mismatches: list[str] = []
    certificates: dict[str, Certificate | str] = {}
    for source in folders_and_archives:
        records: dict[str, Record] = {}
        if source.is_file():
            with tempfile.TemporaryDirectory(prefix="xfbench-") as folder:
                store = Store(Path(folder))
                archive.import_archive(source, store, complain)
                mismatch = _add_store(store, conditions, records, certificates, complain)
        else:
            store = open_existing_store(source)
            mismatch = _add_store(store, conditions, records, certificates, complain)
        by_source[source] = [*records.values()]
        mismatches.append(f"{source}: {mismatch}")
    all_records = {record.id: record for each in by_source.values() for record in each}
    if conditions and not all_records:
        raise NoMatchError("\n".join(mismatches))
    return Gathered([*all_records.values()], by_source, certificates)


def _add_store(
    store: Store,
    conditions: Sequence[Condition],
    records: dict[str, Record],
    certificates: dict[str, Certificate | str],
    complain: WarningHandler,
) -> str:
    """Add what the store has. Return why no record meets the conditions; empty if one does."""
    with index.open_index(store, complain) as record_index:
        matches = {record.id: record for _, record in record_index.select(conditions)}
        mismatch = "" if matches else record_index.describe_mismatch(conditions)
        for line in record_index.damaged:
            complain(line)
    records.update(matches)
    certificates.update(certificate.read_certificates(store.folder))
    return mismatch
