"""A reader's folder: results, those of two other machines, data to prepare, and a home."""

import os
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import command_runner
from tests.datasets.idx_files import encode_idx
from tests.docs import commands
from xfbench.base import paths
from xfbench.environments import environment
from xfbench.model import adapter
from xfbench.store.results_folder import Store


class Reader:
    """The folder and the environment variables in which a reader types commands."""

    def __init__(self, root):
        self.folder = root / "project"
        self.home = root / "home"
        self.variables = {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XFBENCH_DATA": str(self.folder / "data"),
            "XFBENCH_HOME": str(paths.cache()),  # an empty one would have no environments
        }
        self.run_lines = set()  # lines that were run: pages repeat some, and few may run twice

    def split_words(self, line):
        """Return the words of an `xfbench` command as a shell would pass them.

        A redirection of the output is left out.
        """
        words = shlex.split(os.path.expandvars(line).partition(" > ")[0])[1:]
        return [str(Path(word).expanduser()) if word.startswith("~") else word for word in words]

    def shell(self, command, **variables):
        """Run the command in a shell, with these variables besides the reader's."""
        inherited = {k: v for k, v in os.environ.items() if k != "XFBENCH_RESULTS"}
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**inherited, **self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def write_records(folder, record):
    """Write twelve launches into each results folder; return the first record's id."""
    seconds = 0.01
    for path in ("results", "first", "../node7/results", "../laptop/results"):
        store = Store((folder / path).resolve())
        store.create_and_check_folders()
        for framework, threads, launch in product(("torch", "mxnet"), (1, 2), (1, 2, 3)):
            seconds *= 1.003  # no two launches take the same time
            cell = {"framework": framework, "kernel": "onednn", "threads": threads}
            store.add(record((seconds,) * 12, launch, **cell))
    return next(Store(folder / "results").records()).id


def write_images(home):
    """Write MNIST's four files and a folder of pictures, both of noise."""
    random = np.random.RandomState(0)
    (home / "mnist").mkdir(parents=True)
    for prefix, count in (("train", 256), ("t10k", 64)):
        images, labels = random.randint(0, 256, (count, 28, 28)), random.randint(0, 10, count)
        (home / "mnist" / f"{prefix}-images-idx3-ubyte").write_bytes(encode_idx(images))
        (home / "mnist" / f"{prefix}-labels-idx1-ubyte").write_bytes(encode_idx(labels))
    for split, label in product(("train", "val"), ("n01", "n02")):
        folder = home / "pictures" / split / label
        folder.mkdir(parents=True)
        for number in range(8):
            pixels = random.randint(0, 256, (9, 8, 3), np.uint8)
            Image.fromarray(pixels).resize((280, 270)).save(folder / f"{number}.JPEG")


@pytest.fixture(scope="module")
def empty_reader(tmp_path_factory):
    """A reader whose folder does not exist yet."""
    return Reader(tmp_path_factory.mktemp("reader"))


@pytest.fixture
def run_inline(empty_reader, monkeypatch, capsys):
    """A function that runs words of `xfbench` in the reader's folder, within this process."""
    empty_reader.folder.mkdir(exist_ok=True)
    for name, value in empty_reader.variables.items():
        monkeypatch.setenv(name, value)
    return command_runner.make_runner(monkeypatch, capsys, empty_reader.folder)


@pytest.fixture
def reader(empty_reader, record, run_inline, monkeypatch):
    """The module's one reader; its folder is filled on first use."""
    variables = empty_reader.variables
    if "RECORD" not in variables:
        variables["TORCH"] = str(environment.ensure_environment(adapter.load("torch")).interpreter)
        variables["RECORD"] = write_records(empty_reader.folder, record)[7:19]
        write_images(empty_reader.home)
        (empty_reader.folder / "networks").mkdir()
        module = commands.join_code("docs/adding-a-workload.md", "python")
        (empty_reader.folder / "networks" / "smallnet.py").write_text(module)
        study = commands.join_code("docs/how-to/add-a-study.md", "toml")
        (empty_reader.folder / "batches.toml").write_text(study)
        photos = ["--from", empty_reader.home / "pictures", "--as", "photos"]
        for words in (
            ["data", "prepare", "folder", *photos, "--format", "tfrecord"],
            ["results", "export", "theirs.tar.gz", "--results", "../laptop/results"],
        ):
            outcome = run_inline(*words)
            assert outcome.returncode == 0, outcome.stderr
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return empty_reader
