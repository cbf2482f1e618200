"""Run tasks in a framework's interpreter, one after another, each with an answer of its own.

Arguments: the folder of this file, the worker's archive, the framework and the folder of tasks.
`tasks.json` there lists them as [number, function, arguments]. Task 3 leaves `3.begun` and then
`3.npz`, the arrays that the function returned, or `3.error`.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path

import numpy as np


def run_tasks(framework, folder):
    tasks = importlib.import_module(f"{framework}_tasks")
    for number, function, arguments in json.loads((folder / "tasks.json").read_text()):
        (folder / f"{number}.begun").touch()
        try:
            arrays = getattr(tasks, function)(*arguments) or {}
            partial = folder / f"{number}.partial.npz"
            np.savez(partial, **arrays)
            partial.rename(folder / f"{number}.npz")
        except Exception:
            (folder / f"{number}.error").write_text(traceback.format_exc())


here, archive, framework, folder = sys.argv[1:]
sys.path[:0] = [here, archive]
run_tasks(framework, Path(folder))
