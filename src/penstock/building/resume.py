"""What is there already: an earlier build that was cut off, or a dataset to bring up to date. Nothing is mixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dataset.manifest import KEYS_SUFFIX, Manifest, read_manifest, shard_files, shard_pattern
from ..errors import BuildError, CorruptionError, NotFoundError
from ..records.codec import default_threads
from ..records.index import checksum
from .engines.engine import Workers
from .engines.local import Progress, silent
from .journal import Journal
from .targets.ownership import shards_of

if TYPE_CHECKING:
    from .targets.directory import Folder

ANEW = "Build into another directory, or pass overwrite=True (--overwrite) to build this one anew"
DIGESTS = {"keys": "are others", "code": "is other code"}  # what digests tell people
AT_ONCE = 16  # finished files that a worker elsewhere looks at for one task


def find_standing(directory: Path, *, broken: bool = False) -> Manifest | None:
    """The dataset that stands here. One with a broken manifest is an error, or counts as none."""
    try:
        return read_manifest(directory)
    except NotFoundError:
        return None
    except CorruptionError:
        if broken:
            return None
        raise


def begin(
    place: Folder, journal: Journal, standing: Manifest | None, begun: dict[str, Any], overwrite: bool
) -> Manifest | None:
    """Make the journal that of this build, and return the existing dataset if it is to be brought up to date.

    A build that differs from the one of the existing dataset is an error that says in what. An unfinished build
    protects nothing: another one takes its place, and keeps the finished shards that are still valid.
    """
    if overwrite:
        journal.begin(begun)
        return None
    if standing is not None and standing.begun == begun != journal.begun:
        journal.forget()  # an attempt at another dataset that was given up: this one stands
    before = journal.begun or (standing.begun if standing else None)
    if before is None:
        _check_empty(place, begun["name"])
    elif before != begun and (standing is None or not place.published):
        journal.begin_again(begun)
    elif changed := "; ".join(describe_change(before, begun)):
        what = "go on with the build that was begun here" if journal.begun else "bring this dataset up to date"
        raise BuildError(f"expected to {what}, got another one: {changed} - at {place.where}. {ANEW}")
    if journal.begun is not None:
        return None
    journal.begin(begun)
    return standing


def finish_commit(place: Folder, journal: Journal, begun: dict[str, Any]) -> None:
    """Finish the dataset of a build that was cut off at its very end, whatever is built now."""
    assert journal.commit is not None
    place.sweep(place.publish(journal.commit), journal.commit["replaced"])
    if journal.begun != begun:
        journal.forget()


def take_over(journal: Journal, manifest: Manifest, retry: bool) -> None:
    """Note shards of a dataset as done, and with them its plan.

    These are the shards of which it is known what they were made from, for that is compared later; to try bad examples
    again, all that lack none.
    """
    shards = [
        (split, *same)
        for split in manifest.splits
        for same in zip(*(splits[split] for splits in manifest.formats.values()), strict=True)
    ]
    if retry and sum(shard.bad for _, shard, *_ in shards) == manifest.found.get("bad", 0):
        done = [same for same in shards if not same[1].bad]
    else:  # examples that were bad before they became many, or in a stream, belong to no shard
        done = [same for same in shards if same[1].inputs]
    if not done:
        return
    counts = {split: len(shards) for split, shards in manifest.splits.items()}
    journal.note("plan", {"schema": manifest.schema.to_json(), "shards": counts})
    for split, shard, *others in done:
        alternatives = [{"file": each.file, "bytes": each.bytes, "crc32c": each.crc32c} for each in others]
        journal.note("shard", {"split": split, **shard._asdict(), "bad": [], "alternatives": alternatives})


def describe_change(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> list[str]:
    """What differs between two nested dicts, in words."""
    changes: list[str] = []
    for name in sorted(before.keys() | now.keys()):
        a, b = before.get(name), now.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            changes += describe_change(a, b, f"{where}{name} ")
        elif a != b and (name in DIGESTS or where.endswith("columns ") or isinstance(a or b, (dict, list))):
            said = DIGESTS.get(name, "is another") if a and b else "is new" if b else "is gone"
            changes.append(f"{where}{name} {said}")
        elif a != b:
            changes.append(f"{where}{name} was {_shown(a)}, is {_shown(b)}")
    return changes


def _shown(value: Any) -> str:
    return "not said" if value is None else repr(value)


def _check_empty(place: Folder, name: str) -> None:
    """Shards that no manifest and no journal speaks of are someone else's."""
    pattern = shard_pattern(name)
    foreign = next((file for file in sorted(place.names()) if pattern.fullmatch(file)), None)
    if foreign is not None:
        ours = shards_of(place, None, name, overwrite=True)
        hint = ANEW if ours else "Move it away, or build into another directory"
        raise BuildError(f"expected a directory without shards, got {foreign} - at {place.where}. {hint}")


def whole_files(directory: Path, entries: Iterable[dict[str, Any]], workers: Workers | None = None) -> set[str]:
    """The files that are what their entries say: size, checksum, and that index and keys are beside them.

    The same goes for those of the same records in other formats. Where workers are elsewhere, they look: it may be
    more than one machine can read.
    """
    from ..thread_pool import thread_pool  # importing penstock costs nothing

    named = list(entries)
    if workers is not None and workers.apart:
        some = [named[first : first + AT_ONCE] for first in range(0, len(named), AT_ONCE)]
        with closing(workers.map(look_at, directory.absolute(), some, silent)) as results:
            return {file for _, files in results for file in files}
    with thread_pool(default_threads()) as pool:
        found = pool.map(lambda entry: look_at(directory, [entry], silent), named)
        return {file for files in found for file in files}


def look_at(directory: Path, entries: list[dict[str, Any]], progress: Progress) -> list[str]:
    """Those that are what their entries say."""
    return [
        entry["file"]
        for entry in entries
        if all(_is_whole(directory, each) for each in (entry, *entry.get("alternatives", ())))
    ]


def _is_whole(directory: Path, entry: dict[str, Any]) -> bool:
    path = directory / entry["file"]
    try:
        fits = path.stat().st_size == entry["bytes"] and all(
            path.with_name(name).exists() for name in shard_files(path.name)
        )
        if fits and entry.get("keys") is not None:
            fits = checksum(path.with_name(path.name + KEYS_SUFFIX)) == entry["keys"]
        return fits and checksum(path) == entry["crc32c"]
    except OSError:
        return False
