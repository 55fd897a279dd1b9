"""Patterns that name many files, or many objects of a store."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Iterator

from ..errors import StorageError
from .store import is_url, open_store, split_url

MOST_FILES = 1_000_000  # that one pattern may name

_RANGE = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")
_NUMBERED = re.compile(r"\{(\d{0,18})\.\.\}")


def expand(pattern: str | os.PathLike[str]) -> list[str]:
    """The files that a pattern names, in order.

    part-{000..146}.tfrecord   a range, as shells write it: each of its files has to be there
    part-{000..}.tfrecord      those that are there from this number on, up to the first that is missing
    data/**/*.tfrecord         a glob: whatever is there, but at least one file

    A path that exists is taken as it is, whatever characters it has. The objects of a range of URLs are not looked for:
    whoever reads them finds out.
    """
    text = os.fspath(pattern)
    remote = is_url(text)
    if not remote and os.path.lexists(text):
        return [text]
    found: list[str] = []
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
    """What any name of such a pattern matches; its numbers stand for whatever is no folder."""
    return re.compile("[^/]*".join(map(re.escape, re.split(_NUMBERED.pattern.replace("(", "(?:"), pattern))))


def _there(pattern: str) -> list[str]:
    if is_url(pattern):
        raise StorageError(f"expected a range with an end, such as {{000..146}}, got one without - at {pattern}")
    found = list(itertools.takewhile(os.path.exists, itertools.islice(numbered(pattern), MOST_FILES)))
    if not found:
        raise StorageError(f"expected files, got no {next(numbered(pattern))} - at {pattern}")
    return found


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
    first, last = int(match[1]), int(match[2])
    if abs(last - first) >= MOST_FILES:
        raise StorageError(f"expected at most {MOST_FILES} files, got the range {match[0]} - at {text}")
    padded = any(len(end) > 1 and end.startswith("0") for end in match.groups())
    width = max(map(len, match.groups())) if padded else 0
    step = 1 if first <= last else -1
    for number in range(first, last + step, step):
        yield from (f"{text[: match.start()]}{number:0{width}}{rest}" for rest in _ranges(text[match.end() :]))
