"""An LMDB database that somebody else has written is not resumed."""

import lmdb
import numpy as np
import pytest

from xfbench.datasets.lmdb import Writer
from xfbench.worker.formats import Damaged
from xfbench.worker.samples import Sample


def write(folder, keys):
    """Write a database with one small picture for each key."""
    writer = Writer(folder, "train", 0)
    for key in keys:
        writer.add(Sample(key, 0, np.zeros((1, 2, 2), np.uint8)))
    writer.close()


def rename_keys(folder, prefix):
    with (
        lmdb.open(str(folder / "train.lmdb"), lock=False) as database,
        database.begin(write=True) as transaction,
    ):
        items = list(transaction.cursor())
        for key, content in items:
            transaction.delete(key)
            transaction.put(prefix + key, content)


def test_records_with_other_keys_are_not_resumed(tmp_path):
    write(tmp_path, ["a", "b", "c"])
    Writer(tmp_path, "train", 3).close()
    rename_keys(tmp_path, b"x")
    with pytest.raises(Damaged, match="has 0 records from xfbench, not 3"):
        Writer(tmp_path, "train", 3)
