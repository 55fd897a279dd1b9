"""Patterns that name many files, or many objects of a store."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import NotFoundError, SchemaError, StorageError, check_type
from .files import FolderEntry, checked_path, is_file, join_path, list_folder
from .open import open_store
from .store import is_url, split_url

PathLike = str | os.PathLike[str]
Paths = PathLike | Iterable[PathLike]  # one, or some
MOST_FILES = 1_000_000  # that one pattern may name
RECORD_SUFFIXES = {  # of files of records, with the format of each
    **dict.fromkeys((".record", ".tfrecord", ".tfrecords", ".tfrec", ".tfr"), "tfrecord"),
    **dict.fromkeys((".array_record", ".arrayrecord"), "array_record"),
}
PACKED = (".gz", ".tgz", ".zst", ".zip", ".xz", ".bz2")
_OTHERS = (*PACKED, ".tar", ".csv", ".json", ".jsonl", ".parquet", ".npz", ".h5")
SPLIT = "{split}"  # stands for the name of a split in those of its files
_RANGE = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})(?:\.\.(\d{1,18}))?\}")
_NUMBERED = re.compile(r"\{(\d{0,18})\.\.\}")


def path_list(paths: Paths) -> list[str]:
    """A path, or some, as a list of texts."""
    if isinstance(paths, (str, os.PathLike)):
        return [checked_path(paths)]
    if isinstance(paths, (bytes, Mapping)) or not isinstance(paths, Iterable):
        raise SchemaError(f"expected a path, or a list of paths, got {type(paths).__name__}")
    found = list(paths)
    if not found:
        raise SchemaError("expected a path, or a list of paths, got an empty list")
    for path in found:
        check_type(path, (str, os.PathLike), "paths in a list of them")
    return [checked_path(path) for path in found]


def expand(pattern: PathLike) -> list[str]:
    """The files that a pattern names, in order.

    part-{000..146}.tfrecord   a range, as shells write it: each of its files has to be there; {0..8..2} is every other
    part-{000..}.tfrecord      those that are there from this number on: none may be missing in between
    {split}-{000..}.tfrecord   the same of every split
    data/**/*.tfrecord         a glob: whatever is there, but at least one file

    A path that exists is taken as it is, whatever characters it has. The objects of a range of URLs are not looked for:
    whoever reads them finds out.
    """
    text = checked_path(pattern)
    remote = is_url(text)
    if not remote and os.path.lexists(text):
        return [text]
    found: list[str] = []
    if SPLIT in text:
        return [path for name in split_patterns(text).values() for path in expand(name)]
    for name in _ranges(text):
        if is_numbered(name):
            found += _there(name)
            continue
        if not is_glob(name):
            if name != text and not remote and not os.path.exists(name):
                raise StorageError(f"expected every file of the range to be there, got no {name} - at {text}")
            found.append(name)
            continue
        matches = _objects(name) if remote else _files(name)
        if not matches:
            raise StorageError(
                f"expected files, got none that match {name}" + (f" - at {text}" if name != text else "")
            )
        found += matches
        if len(found) > MOST_FILES:
            raise StorageError(f"expected at most {MOST_FILES} files, got more - at {text}")
    return found


def is_numbered(path: str | os.PathLike[str]) -> bool:
    """Whether a path stands for files with numbers, such as out-{00000..}.tar, however many there are."""
    return _NUMBERED.search(os.fspath(path)) is not None


def numbered(pattern: str) -> Iterator[str]:
    """The names that such a pattern gives, without an end; the pattern itself where it has no numbers."""
    match = _NUMBERED.search(pattern)
    if match is None:
        yield pattern
        return
    for number in range(int(match[1] or 0), 1 << 62):
        yield f"{pattern[: match.start()]}{number:0{len(match[1])}}{pattern[match.end() :]}"


def named_by(pattern: str) -> re.Pattern[str]:
    """What the names of such a pattern match, their numbers as a group."""
    parts = re.split(_NUMBERED.pattern.replace("(", "(?:"), pattern)
    return re.compile(r"(\d+)".join(map(re.escape, parts)))


def numbered_files(pattern: str) -> dict[int, str]:
    """The files that are there under the names of a pattern, by their numbers."""
    folder, name = os.path.split(pattern)
    if is_numbered(folder):
        raise StorageError(f"expected numbers in the names of files, got them in a folder's - at {pattern}")
    names = named_by(name)
    matches = [(names.fullmatch(entry), entry) for entry in _names_in(folder)]
    found = {int(match[1]) if match.groups() else 0: os.path.join(folder, entry) for match, entry in matches if match}
    first = names.fullmatch(next(numbered(name)))
    start = int(first[1]) if first and first.groups() else 0
    return {number: found[number] for number in sorted(found) if number >= start}


def _names_in(folder: str) -> list[str]:
    """The names in a folder, local or of a store; none where there is no folder."""
    if is_url(folder):
        store, name = open_store(folder)
        below = (entry.name[len(name) :].lstrip("/") for entry in store.list(name))
        return [name for name in below if "/" not in name]
    try:
        return os.listdir(folder or ".")
    except (FileNotFoundError, NotADirectoryError):
        return []


def split_patterns(pattern: str) -> dict[str, str]:
    """The patterns of splits whose files are there: {split}-{000..}.tfrecord stands for train-{000..}.tfrecord ..."""
    first, *rest = pattern.split(SPLIT)
    parts = [named_by(part).pattern for part in (first, "".join(rest[:1]))]
    same = "".join(f"(?P=split){named_by(part).pattern}" for part in rest[1:])
    names = re.compile(rf"{parts[0]}(?P<split>[\w-]+){parts[1]}{same}")
    root, inner = split_url(pattern) if is_url(pattern) else ("", pattern)
    anything = "*".join(map(glob.escape, re.split(r"\{split\}|\{\d*\.\.\}", inner)))
    paths = _objects(f"{root}/{anything}") if root else glob.glob(anything)
    matches = (names.fullmatch(path) for path in paths)
    found = sorted({match["split"] for match in matches if match})
    if not found:
        raise StorageError(f"expected files of some split, got none - at {pattern}")
    return {split: pattern.replace(SPLIT, split) for split in found}


def _there(pattern: str) -> list[str]:
    """The files of a pattern. One that is missing before others that are there is an error."""
    found = list(numbered_files(pattern).values())
    if not found:
        raise StorageError(f"expected files, got no {next(numbered(pattern))} - at {pattern}")
    for path, wanted in zip(found, numbered(pattern), strict=False):
        if path != wanted:
            raise StorageError(
                f"expected every file of the range to be there, got no {wanted}, but {path} - at {pattern}"
            )
    return found


def names_record_files(path: str | os.PathLike[str]) -> bool:
    """Return True if a path stands for files of records, one or many with numbers."""
    suffix, folder = os.path.splitext(path)[1].lower(), os.path.isdir(path)
    if suffix not in RECORD_SUFFIXES:
        if is_numbered(path) or SPLIT in str(path) or (suffix in _OTHERS and not folder and not is_url(path)):
            expected = f"expected a folder, or names of files that end in {', '.join(RECORD_SUFFIXES)}"
            hint = "compression= says how they are compressed" if suffix in PACKED else ""
            raise SchemaError(f"{expected}, got others", str(path), hint)
        return False
    if set(os.path.basename(path)) & set("*?") and not os.path.exists(path):
        hint = f"Number them: {re.sub('[*?]+', '{000..}', str(path), count=1)}"
        raise SchemaError("expected names of files to write, got a glob", str(path), hint)
    return not folder


def is_glob(path: str) -> bool:
    """Whether a path, or what a URL names in its store, has characters that stand for others."""
    return glob.has_magic(split_url(path)[1] if is_url(path) else path)


def _files(pattern: str) -> list[str]:
    return sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))


def _objects(pattern: str) -> list[str]:
    """The objects that a glob names, among those of its longest fixed folder."""
    store, name = open_store(pattern)
    fixed = name[: next(at for at, letter in enumerate(name) if letter in "*?[")].rpartition("/")[0]
    parts = re.split(r"(\*\*/|\*|\?|\[[^]]*\])", name)
    magic = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    wanted = re.compile("".join(magic.get(part) or _letters(part) for part in parts))
    return [f"{store.url}/{entry.name}" for entry in store.list(fixed) if wanted.fullmatch(entry.name)]


def _letters(part: str) -> str:
    """Letters as they are, or some of which one stands there."""
    return fnmatch.translate(part)[len("(?s:") : -len(")\\Z")] if part.startswith("[") else re.escape(part)


def _ranges(text: str) -> Iterator[str]:
    """The text with each of its ranges counted out; the first one turns slowest."""
    match = _RANGE.search(text)
    if match is None:
        yield text
        return
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if not step or abs(last - first) // step >= MOST_FILES:
        raise StorageError(f"expected at most {MOST_FILES} files, got the range {match[0]} - at {text}")
    ends = match[1], match[2]
    width = max(map(len, ends)) if any(len(end) > 1 and end.startswith("0") for end in ends) else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    for number in numbers:
        yield from (f"{text[: match.start()]}{number:0{width}}{rest}" for rest in _ranges(text[match.end() :]))


def entries(folder: str) -> Sequence[FolderEntry]:
    """What is in a folder, by name; hidden files are left out."""
    return list_folder(folder).entries()


def is_directory(entry: FolderEntry) -> bool:
    """Return True if an entry is a folder; a broken link is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def files_named(patterns: Paths, suffixes: Sequence[str]) -> list[str]:
    """The files that patterns name; a folder stands for those in it that have one of the suffixes."""
    return [file for text in path_list(patterns) for file in _files_named(text, suffixes)]


def _files_named(text: str, suffixes: Sequence[str]) -> list[str]:
    if is_url(text):
        named = text.startswith("http") or is_glob(text) or "{" in text or has_suffix(text, suffixes)
        if named or is_file(text):
            return expand(text)  # whether an object is there, its store tells when it is read
    elif not os.path.isdir(text):
        files = expand(text)
        for path in files:
            if not os.path.lexists(path):
                raise NotFoundError(f"expected a file or a folder, got nothing at {path}")
        return files
    names = [entry.name for entry in entries(text) if entry.is_file() and has_suffix(entry.name, suffixes)]
    if not names:
        raise StorageError(f"expected files that end in {' or '.join(suffixes)}, got none - at {text}")
    return [join_path(text, name) for name in names]


def record_suffixes(format: str) -> tuple[str, ...]:
    """Return the suffixes of the files of a format, also of those that are compressed as a whole."""
    plain = tuple(suffix for suffix, named in RECORD_SUFFIXES.items() if named == format)
    return (*plain, *(f"{suffix}.gz" for suffix in plain)) if format == "tfrecord" else plain


def has_suffix(name: str, suffixes: Sequence[str]) -> bool:
    """Whether a name ends in one of the suffixes, in capitals or not."""
    return name.lower().endswith(tuple(suffixes))
