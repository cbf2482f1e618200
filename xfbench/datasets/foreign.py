"""Record files and databases of other tools: which of them belong to which split.

Words in the names say the split: `train-00000-of-00008`, `flowers_val.rec`, `ilsvrc12_train_lmdb`.
Files whose names differ only in a number are the parts of one set.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xfbench.base.errors import UsageError
from xfbench.worker.formats import Damaged, check_file, lmdb, recordio, tfrecord
from xfbench.worker.formats.folder import is_left_behind
from xfbench.worker.samples import Sample

TRAIN = ("train", "training")
"""Words for the images to train with."""
TEST = ("test", "testing", "val", "validation", "valid", "eval")
"""Words for the images to test with. If several sets have such words, the first word counts."""
_NAMED_FILES = 10  # in the message that no file has the pattern
_NUMBER = r"(?:[-_.](?P<number>[0-9]{1,18})(?:-of-(?P<count>[0-9]{1,18}))?)?"
_NAMES = {
    "tfrecord": re.compile(
        rf"(?P<head>.+?){_NUMBER}(?P<suffix>\.tfrecords?|\.tfrec)?(?:\.gz)?", re.IGNORECASE
    ),
    "recordio": re.compile(
        rf"(?P<head>.+?){_NUMBER}(?P<suffix>\.rec)(?:\.part(?P<part>[0-9]{{1,18}}))?"
    ),
}
_ANY_NAME = re.compile(rf"(?P<head>.+?){_NUMBER}(?P<suffix>\.[A-Za-z]\w*)?(?:\.gz)?")
"""The name of a TFRecord file that a pattern selects."""


@dataclass
class _FileSet:
    """Files that contain one split: `parts` has the number (or None) and the path of each.

    `counts` has the number of parts that each name tells, or None. `present` has the numbers of
    all parts in the folder if patterns select some of them.
    """

    name: str
    word: str | None
    parts: list[tuple[int | None, Path]] = field(default_factory=list)
    counts: set[int | None] = field(default_factory=set)
    present: frozenset[int | None] = frozenset()


@dataclass(frozen=True)
class Selection:
    """What to read from the files of another tool.

    - `patterns`: glob patterns of the files, relative to the source. If there is none, the names
      that each format usually has decide.
    - `features`: names of the TFRecord features "image" and "label", if they are not usual ones.
    """

    patterns: tuple[str, ...] = ()
    features: dict[str, str] = field(default_factory=dict)

    def check(self, format_name: str | None) -> None:
        """Raise UsageError if the files of the source cannot be selected like this.

        `format_name` is None for sources that are not files of another tool.
        """
        if self.patterns and format_name not in ("tfrecord", "recordio"):
            raise UsageError("--pattern works only with tfrecord:DIR and recordio:DIR")
        if self.features and format_name != "tfrecord":
            raise UsageError("--features works only with tfrecord:DIR")


def parse_selection(patterns: Sequence[str], features: str | None) -> Selection:
    """Return the selection of `--pattern` and `--features`. Raises UsageError if one is invalid."""
    for pattern in patterns:
        parts = pattern.split("/")
        if not pattern or {"", ".."} & set(parts) or any("**" in p and p != "**" for p in parts):
            raise UsageError(
                f"--pattern {pattern!r}: expected a pattern of paths below the source, such as "
                "'train-*-of-*' or 'train/*.tfrec'"
            )
    names: dict[str, str] = {}
    for pair in features.split(",") if features is not None else ():
        kind, _, name = pair.partition("=")
        if kind.lower() not in ("image", "label") or not name or kind.lower() in names:
            raise UsageError(
                f"--features {features}: expected image=NAME, label=NAME, or both with a comma"
            )
        names[kind.lower()] = name
    return Selection(tuple(patterns), names)


def open_splits(
    root: Path, format_name: str, selection: Selection | None = None
) -> tuple[Sequence[Sample], Sequence[Sample] | None, tuple[str, ...]]:
    """Return the training images, the test images if there are any, and remarks for the user.

    Raises Damaged if there is not exactly one set of training files, or if a file is damaged.
    """
    selection = selection or Selection()
    selection.check(format_name)
    if selection.patterns:
        file_sets = list(_list_selected_files(root, format_name, selection.patterns))
    else:
        list_file_sets = _list_databases if format_name == "lmdb" else _list_record_files
        file_sets = list(list_file_sets(root, format_name))
    train, test, remarks = _choose_splits(root, format_name, file_sets)
    read = _READERS[format_name]
    if format_name == "tfrecord":
        read = functools.partial(tfrecord.read_files, names=selection.features)
    test_samples = read(_ordered_paths(test)) if test else None
    train_samples = read(_ordered_paths(train))
    remarks.insert(0, f"{root}: {format_name}: {_describe_sets(train, test)}")
    return train_samples, test_samples, tuple(remarks)


def recognize_format(root: Path) -> str | None:
    """Return the format of another tool's files in the folder `root`, or None if it has none.

    Raises Damaged if there are files of several formats.
    """
    folders = [root, *(path for path in _list_visible(root) if path.is_dir())]
    files = [
        path
        for folder in folders
        if folder == root or (folder / "data.mdb").is_file() or any(find_words(folder.name))
        for path in folder.iterdir()
        if not is_left_behind(path.name) and not path.is_dir()
    ]
    recognized = {
        "lmdb": any(_is_database_file(path) for path in files),
        "tfrecord": any(_match_name(path, "tfrecord") for path in files),
        "recordio": any(_match_name(path, "recordio") for path in files),
    }
    formats = [name for name, is_present in recognized.items() if is_present]
    if len(formats) > 1:
        raise Damaged(
            f"{root} has files of {' and '.join(formats)}: write which ones to read, such as "
            f"{formats[0]}:{root}"
        )
    return formats[0] if formats else None


def _describe_sets(train: _FileSet, test: _FileSet | None) -> str:
    def describe(file_set: _FileSet) -> str:
        count = len(file_set.parts)
        return file_set.name if count == 1 else f"{file_set.name} ({count} files)"

    text = f"training set {describe(train)}"
    return f"{text}, test set {describe(test)}" if test else f"{text}, no test set"


_READERS: dict[str, Callable[[list[Path]], Sequence[Sample]]] = {
    "tfrecord": tfrecord.read_files,
    "recordio": recordio.read_files,
    "lmdb": lambda paths: lmdb.read_file(paths[0]),
}


def _choose_splits(
    root: Path, format_name: str, file_sets: Sequence[_FileSet]
) -> tuple[_FileSet, _FileSet | None, list[str]]:
    train = [file_set for file_set in file_sets if file_set.word in TRAIN]
    tests = sorted(
        (file_set for file_set in file_sets if file_set.word in TEST),
        key=lambda file_set: TEST.index(file_set.word or ""),
    )
    nameless = [file_set for file_set in file_sets if file_set.word is None]
    remarks = []
    if not train and len(nameless) == 1:
        train, nameless = nameless, []
        remarks.append(f"{root}: {train[0].name} is taken as the training set: no name says train")
    if not train:
        names = ", ".join(file_set.name for file_set in file_sets) or f"no {format_name} files"
        raise Damaged(f"{root} has no training set: a name must have the word train ({names})")
    for word, same in (
        ("training", train),
        ("test", [t for t in tests if t.word == tests[0].word]),
    ):
        if len(same) > 1:
            raise Damaged(
                f"{root} has two possible {word} sets, {same[0].name} and {same[1].name}: "
                "move one of them elsewhere"
            )
    if left_out := [*tests[1:], *nameless]:
        names = ", ".join(file_set.name for file_set in left_out)
        remarks.append(f"{root}: left out: {names}")
    return train[0], tests[0] if tests else None, remarks


def _list_databases(root: Path, _: str) -> Iterator[_FileSet]:
    """Yield the databases: folders with a file `data.mdb`, and files NAME.lmdb or NAME.mdb."""
    if not root.is_dir():
        raise Damaged(f"{root} is not a folder")
    if (root / "data.mdb").is_file():
        yield _FileSet(root.resolve().name, "train", [(None, root / "data.mdb")])
        return
    for path in _list_visible(root):
        if path.is_dir() and (path / "data.mdb").exists():
            yield _FileSet(path.name, _split_word(path.name), [(None, path / "data.mdb")])
        elif not path.is_dir() and _is_database_file(path):
            yield _FileSet(path.name, _split_word(path.name), [(None, path)])


def _is_database_file(path: Path) -> bool:
    return path.suffix in (".lmdb", ".mdb") and path.name != "lock.mdb"


def _list_record_files(root: Path, format_name: str) -> Iterator[_FileSet]:
    """Yield the sets of files in `root`, and those in its folders whose names tell a split."""
    if not root.is_dir():
        raise Damaged(f"{root} is not a folder")
    for path in _list_visible(root):
        if path.is_dir() and (word := _split_word(path.name)):
            nested = _group_files(_list_visible(path), format_name).values()
            for file_set in nested:
                if file_set.counts != {None}:
                    _ordered_paths(file_set)  # raises Damaged if a part is missing
            places = sorted(place for file_set in nested for _, place in file_set.parts)
            if places:
                yield _FileSet(path.name, word, [(None, place) for place in places])
    for file_set in _group_files(_list_visible(root), format_name).values():
        file_set.word = _split_word(file_set.name)
        yield file_set


def _list_selected_files(
    root: Path, format_name: str, patterns: Sequence[str]
) -> Iterator[_FileSet]:
    """Yield the sets of the files that `patterns` match. A split's word may be in any folder."""
    selected = {path for each in patterns for path in _match_pattern(root, format_name, each)}
    for folder in sorted({path.parent for path in selected}):
        place = folder.relative_to(root).as_posix()
        word = _split_word(place)
        present = _group_files(_list_visible(folder), format_name, any_name=True)
        paths = sorted(path for path in selected if path.parent == folder)
        file_sets = _group_files(paths, format_name, any_name=True)
        for group, file_set in file_sets.items():
            file_set.present = frozenset(number for number, _ in present[group].parts)
            file_set.word = word or _split_word(file_set.name)
        if word:
            ordered = [path for each in file_sets.values() for path in _ordered_paths(each)]
            yield _FileSet(place, word, [(None, path) for path in ordered])
        else:
            yield from file_sets.values()


def _match_pattern(root: Path, format_name: str, pattern: str) -> list[Path]:
    """Return the record files of a pattern. Raises Damaged if there are none."""
    if not root.is_dir():
        raise Damaged(f"{root} is not a folder")
    matches = [
        path
        for path in root.glob(pattern)
        if not path.is_dir()
        and not any(map(is_left_behind, path.relative_to(root).parts))
        and _match_name(path, format_name, any_name=True)
    ]
    if not matches:
        names = [path.name for path in _list_visible(root)]
        more = ", …" if len(names) > _NAMED_FILES else ""
        raise Damaged(
            f"--pattern {pattern} matches no {format_name} files in {root}, which has "
            f"{', '.join(names[:_NAMED_FILES]) or 'no files'}{more}"
        )
    return matches


def _group_files(
    paths: Sequence[Path], format_name: str, *, any_name: bool = False
) -> dict[tuple[str, ...], _FileSet]:
    """Return the sets of record files whose names differ only in a number.

    If `any_name` is true, parts of different counts belong to different sets.
    """
    file_sets: dict[tuple[str, ...], _FileSet] = {}
    for path in paths:
        match = None if path.is_dir() else _match_name(path, format_name, any_name=any_name)
        if match:
            count = f"-of-{match['count']}" if any_name and match["count"] else ""
            group = match["head"], count, match["suffix"] or ""
            file_set = file_sets.setdefault(group, _FileSet("".join(group), None))
            number = match["number"] or match.groupdict().get("part")
            file_set.parts.append((None if number is None else int(number), path))
            file_set.counts.add(None if match["count"] is None else int(match["count"]))
    return file_sets


def _list_visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not is_left_behind(path.name))


def _match_name(path: Path, format_name: str, *, any_name: bool = False) -> re.Match[str] | None:
    """Return the match of a record file's name, or None for any other file.

    TFRecord files may have any name if `any_name` is true, except that of an index.
    """
    if format_name != "tfrecord":
        return _NAMES[format_name].fullmatch(path.name)
    if path.suffix in (".idx", ".index"):
        return None
    if any_name:
        return _ANY_NAME.fullmatch(path.name)
    match = _NAMES["tfrecord"].fullmatch(path.name)
    is_named = match and (match["suffix"] or match["count"] or ".tfrecord" in match["head"])
    return match if is_named else None


def _split_word(name: str) -> str | None:
    """Return the word in a name that tells a split, or None.

    Raises Damaged if the name has a word for training and one for tests.
    """
    train, test = find_words(name)
    if train and test:
        raise Damaged(f"{name} has the words {train} and {test} in its name: rename it")
    return train or test


def find_words(name: str) -> tuple[str | None, str | None]:
    """Return the word for training in a name, and the word for tests. None if there is none."""
    words = re.findall("[a-z]+", name.lower())
    train, test = (next((w for w in words if w in names), None) for names in (TRAIN, TEST))
    return train, test


def _ordered_paths(file_set: _FileSet) -> list[Path]:
    """Return the files of a set in the order of their numbers. Raises Damaged if one is missing."""
    numbers = [number for number, _ in file_set.parts]
    if None in numbers:
        if len(set(numbers)) > 1:
            raise Damaged(f"{file_set.name}: there is one file without a number, and numbered ones")
        paths = [path for _, path in file_set.parts]
    else:
        ordered = sorted(file_set.parts)
        count, first, last = next(iter(file_set.counts)), ordered[0][0] or 0, ordered[-1][0] or 0
        expected = range(count) if count is not None else range(first, last + 1)
        known_numbers = file_set.present.union(numbers)
        is_complete = len(known_numbers) >= len(expected) and known_numbers.issuperset(expected)
        is_repeated = len(set(numbers)) < len(numbers) or last not in expected
        if len(file_set.counts) > 1 or not is_complete or is_repeated:
            raise Damaged(
                f"{file_set.name}: shards are missing from the sequence that begins with "
                f"{ordered[0][1].name}"
            )
        paths = [path for _, path in ordered]
    return [check_file(path) for path in paths]
