"""The results folder: immutable records, one JSON file each, and the folders of their runs.

A record appears whole or not at all: temporary file, fsync, rename. Two drivers may
write into one folder; a file that is no record is told about, never repaired.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from pydantic import ValidationError

from xfbench import atomic
from xfbench.errors import UsageError
from xfbench.record import Record
from xfbench.sealed import EditedError

_README = """Results of xfbench.

records/       one JSON file per launch, schema xfbench.record/1; never changed
certificates/  what was proven equal, named by the records it covers; never changed
runs/          what each launch was given and what it said; command.sh runs it again
jobs/          scripts of submitted jobs, and what they wrote
A file under records/ may be copied elsewhere; runs/ may be deleted.
"""


class Store:
    """One results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder. Raises UsageError if it cannot be written."""
        try:
            (self.folder / "records").mkdir(parents=True, exist_ok=True)
            (self.folder / "runs").mkdir(exist_ok=True)
            readme = self.folder / "README"
            if not readme.exists():
                readme.write_text(_README, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{self.folder}: {error.strerror}: name another folder with --results"
            ) from error

    def new_run(self) -> Path:
        """A fresh folder for a launch that has no record yet."""
        return Path(tempfile.mkdtemp(prefix="running-", dir=self.folder / "runs"))

    def run_folder(self, record: Record) -> Path:
        return self.folder / "runs" / record.id[7:23]

    def certificate_path(self, identity: str) -> Path:
        return self.folder / "certificates" / f"{identity[7:]}.json"

    def add(self, record: Record, run: Path | None = None) -> None:
        """Keep a record, and let its run's folder carry its name from now on."""
        path = self.folder / "records" / record.id[7:9] / f"{record.id[7:]}.json"
        text = json.dumps(record.document(), indent=1, ensure_ascii=False) + "\n"
        atomic.write(path, text.encode())
        if run is not None:
            run.replace(self.run_folder(record))

    def records(
        self, complain: Callable[[str], None] = lambda _: None, skip: Container[str] = ()
    ) -> Iterator[Record]:
        """Every record but those with an id in `skip`, oldest first.

        `complain` hears of each file that is none.
        """
        found = []
        for path in (self.folder / "records").glob("??/*.json"):
            if f"sha256:{path.stem}" in skip:
                continue
            try:
                record = Record.read(path.read_bytes())
                if path.stem != record.id[7:]:
                    raise EditedError("its name is not its id")
            except EditedError as error:
                complain(f"{path.name}: {error}; left out")
            except (ValidationError, OSError, ValueError) as error:
                complain(f"{path.name}: not a record: {str(error).splitlines()[0]}")
            else:
                found.append(record)
        yield from sorted(found, key=lambda record: (record.created, record.id))
