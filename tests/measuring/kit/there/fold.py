"""Fold the results of cases in this folder: `python fold.py` (see xfbench/worker/folding.py)."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path("worker.pyz").absolute()))

from xfbench.worker import folding

for path in Path().glob("found*.npz"):
    with np.load(path) as stored:
        results = dict(stored)
    for key, value in results.items():
        if folding.is_folded(key.rpartition(":")[2]):
            results[key] = folding.fold(value)
    np.savez(path, **results)  # the archive compresses it
