"""The end of a build: content that stands in two splits; shards are moved in, published, and what is left over goes."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._core import __version__, crc32c, hash_records
from ..dataset.manifest import (
    ATTEMPT,
    MANIFEST,
    WORK,
    Info,
    Manifest,
    ShardEntries,
    ShardEntry,
    hashes_path,
    shard_files,
    shard_pattern,
    write_manifest,
)
from ..dataset.provenance import read_keys
from ..dataset.tfds import INFO, metadata_files, remove_metadata, write_metadata
from ..dataset.tfds_features import FEATURES, LABELS
from ..records.shard import open_shard
from ..schema.columns import Array
from ..schema.schema import Schema
from ..storage.local import publish, sync_folder
from .encode import Outcome
from .journal import JOURNAL, LOCK, MARKER, mark_work_folder
from .targets.ownership import QUARANTINE, with_sidecars

MOST_LEAKS = 10  # that are named
STEP = 4096  # records that are hashed at a time


@dataclass(frozen=True)
class Leak:
    """Content that stands in more than one split: where, as split and key."""

    places: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " = ".join(f"{split}[{key!r}]" for split, key in self.places)


def find_leaks(
    splits: Mapping[str, list[Path]], with_keys: Callable[[Path], Path] = lambda path: path
) -> tuple[int, list[Leak]]:
    """How many contents stand in more than one split, and some of them. `splits` has the shards of each.

    with_keys  gives a shard whose keys are beside it
    """
    if len(splits) < 2:
        return 0, []
    names = list(splits)
    parts = list(_suspects(splits))
    split_of = np.concatenate([np.full(len(rows), names.index(split)) for split, _, _, rows in parts])
    part_of = np.concatenate([np.full(len(rows), at) for at, (_, _, _, rows) in enumerate(parts)])
    row_of = np.concatenate([rows for _, _, _, rows in parts])
    hashes = np.concatenate([hashes for _, _, hashes, _ in parts])
    order = np.lexsort((split_of, hashes))
    ranked, owner = hashes[order], split_of[order]
    crossing = np.unique(ranked[1:][(ranked[1:] == ranked[:-1]) & (owner[1:] != owner[:-1])])
    leaks = []
    for content in crossing[:MOST_LEAKS]:
        at = order[np.searchsorted(ranked, content) : np.searchsorted(ranked, content, side="right")]
        _, first = np.unique(split_of[at], return_index=True)
        places = [(parts[part_of[n]], int(row_of[n])) for n in at[first]]
        leaks.append(Leak(tuple((split, read_keys(with_keys(path))[row]) for (split, path, *_), row in places)))
    return len(crossing), leaks


def _suspects(splits: Mapping[str, list[Path]]) -> Iterator[tuple[str, Path, Array, Array]]:
    """Shards, with the hashes of records that may stand in another split too, and the records' numbers.

    Of the largest split, which may be too large for memory, these are only those that another one has.
    """
    largest = max(splits, key=lambda split: len(splits[split]))
    known = [np.empty(0, np.uint64)]
    for split, paths in splits.items():
        for path in paths if split != largest else ():
            known.append(content_hashes(path))
            yield split, path, known[-1], np.arange(len(known[-1]))
    others = np.unique(np.concatenate(known))
    for path in splits[largest]:
        hashes = content_hashes(path)
        rows = np.flatnonzero(np.searchsorted(others, hashes) != np.searchsorted(others, hashes, side="right"))
        yield largest, path, hashes[rows], rows


def content_hashes(path: Path) -> Array:
    """Of each record's content: as its task left them, or from the shard itself."""
    try:
        return np.asarray(np.load(hashes_path(path), allow_pickle=False), np.uint64)
    except (OSError, ValueError):
        reader = open_shard(path)
        steps = range(0, len(reader), STEP)
        return np.concatenate([np.empty(0, np.uint64), *(hash_records(reader[at : at + STEP]) for at in steps)])


def describe_dataset(
    info: Info,
    begun: dict[str, Any],
    schema: Schema,
    formats: list[str],
    outcomes: list[Outcome],
    found: dict[str, Any],
) -> Manifest:
    """The manifest of what was built."""
    first, *others = (_entries(outcomes, at) for at in range(len(formats)))
    made = {"penstock": __version__, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    told = (begun["options"], begun["source"], found, made, info)
    alternatives = dict(zip(formats[1:], others, strict=True))
    return Manifest(begun["name"], schema, first, *told, formats[0], alternatives, files={})


def _entries(outcomes: list[Outcome], format: int) -> ShardEntries:
    """What was built in one of the formats, by its number."""
    splits: dict[str, list[ShardEntry]] = {}
    for done in outcomes:
        first: dict[str, Any] = {"file": done.file, "bytes": done.bytes, "crc32c": done.crc32c}
        told: dict[str, Any] = {"inputs": done.inputs, "ignored": done.ignored, "bad": len(done.bad), "keys": done.keys}
        entry = ShardEntry(records=done.records, **[first, *done.alternatives][format], **told)
        splits.setdefault(done.split, []).append(entry)
    return {split: tuple(entries) for split, entries in splits.items()}


def publish_dataset(directory: Path, commit: dict[str, Any]) -> Manifest:
    """Move finished shards in, write what TFDS reads, and the manifest: from here on, there is a dataset.

    Where a shard takes the place of another, the manifest of the dataset before goes first. Done again after it was cut
    off, this ends with the same files; `commit` is what the journal keeps for that.
    """
    manifest = committed_manifest(commit, str(directory))
    names = [name for file in commit["staged"] for name in shard_files(file)]
    moves = [(directory / WORK / name, directory / name) for name in names if (directory / WORK / name).exists()]
    stale = set(commit.get("stale", ()))
    if any(target.exists() for _, target in moves):
        (directory / MANIFEST).unlink(missing_ok=True)
        if INFO in stale:
            remove_metadata(directory)
        sync_folder(directory)
    for source, target in moves:
        os.replace(source, target)
    sync_folder(directory)
    write_quarantine(directory, commit["quarantine"], stale)
    write_metadata(directory, manifest, stale - {MANIFEST, QUARANTINE})
    write_manifest(directory, manifest)
    return manifest


def committed_manifest(commit: dict[str, Any], where: str) -> Manifest:
    """Return the manifest of a commit, with the checksums of the files that are published beside it."""
    manifest = Manifest.from_json(commit["manifest"], where)
    files = metadata_files(manifest)
    if commit["quarantine"]:
        files[QUARANTINE] = quarantine_bytes(commit["quarantine"])
    return replace(manifest, files={name: crc32c(data) for name, data in files.items()})


def quarantine_bytes(bad: list[dict[str, str]]) -> bytes:
    """One line for each bad example."""
    return "".join(json.dumps(entry) + "\n" for entry in bad).encode()


def write_quarantine(directory: Path, bad: list[dict[str, str]], stale: Iterable[str] = ()) -> None:
    """One line for each bad example; no file where there is none."""
    path = directory / QUARANTINE
    if bad:
        publish(path, quarantine_bytes(bad))
    elif QUARANTINE in stale:
        path.unlink(missing_ok=True)


def sweep_temporary(directory: Path, name: str) -> None:
    """Remove the files that killed builds, and attempts that nobody waited for, were writing."""
    files = "|".join(map(re.escape, (MANIFEST, QUARANTINE, INFO, FEATURES)))
    shards = shard_pattern(name).pattern
    ours = re.compile(rf"\.(({shards})\.\d+-\d+|({files}|[^/]*{re.escape(LABELS)})\.\w{{8}})\.partial")
    for path in [*directory.iterdir(), *(directory / WORK).iterdir()]:
        unfinished = path.suffix == ".partial" or path.name.startswith(ATTEMPT)
        if ours.fullmatch(path.name) or (path.parent.name == WORK and unfinished):
            path.unlink(missing_ok=True)


def remove_work(directory: Path) -> None:
    """Remove the work folder, its marker last. An attempt that nobody waits for may still write there for a moment."""
    work = directory / WORK
    for name in (JOURNAL, LOCK):
        (work / name).unlink(missing_ok=True)
    for _ in range(10):
        for path in work.iterdir() if work.exists() else ():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARKER:
                path.unlink(missing_ok=True)
        try:
            (work / MARKER).unlink(missing_ok=True)
            work.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            mark_work_folder(work)
            time.sleep(0.1)  # what is left then, the next build here sweeps
        else:
            return


def sweep_shards(directory: Path, manifest: Manifest, replaced: Iterable[str]) -> None:
    """Remove the shards of an earlier dataset that are not part of this one."""
    sweep_temporary(directory, manifest.name)
    kept = with_sidecars(shard.file for shard in manifest.shards())
    for name in with_sidecars(replaced) - kept:
        (directory / name).unlink(missing_ok=True)
