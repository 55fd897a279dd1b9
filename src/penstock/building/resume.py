"""Begin a build where an earlier one was interrupted, or a dataset exists. Nothing is mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..dataset.manifest import MANIFEST, Info, Manifest, dataset_name, dataset_version
from ..errors import BuildError
from .entries import Begin, Plan, RecordFile, ShardResult
from .journal import Journal
from .listing import Split
from .plan import Options
from .targets.directory import REBUILD, Directory, wanted_metadata

DIGESTS = {"keys": "are others", "code": "is other code"}  # digests, in words


@dataclass(frozen=True)
class Start:
    """What is known before any example is loaded.

    existing  The dataset to bring up to date.
    metadata  Files besides shards at the target that are Penstock's.
    replaced  Shards at the target that are Penstock's.
    """

    info: Info
    begun: Begin
    existing: Manifest | None
    metadata: set[str]
    replaced: set[str]


def start_build(
    target: Directory, journal: Journal, options: Options, splits: list[Split], info: Info | None, *, overwrite: bool
) -> Start:
    """Finish an interrupted commit, refuse a target that holds something else, and begin or resume the build."""
    existing = target.existing(damaged=overwrite)
    info = _named(target, info, None if overwrite else existing, None if overwrite else journal.begun)
    name = info.name or dataset_name(target.path)
    if options.retry and (overwrite or (journal.begun is None and existing is None)):
        raise BuildError(f"expected a dataset whose bad examples can be tried again, got none - at {target.where}")
    begun = Begin(name, options.to_json(), {split.name: split.fingerprint() for split in splits})
    if journal.commit is not None:
        target.sweep(target.publish(journal.commit), journal.commit.replaced)
        if journal.begun != begun:
            journal.forget()
        existing = target.existing()
    metadata = target.metadata_of(existing) | journal.metadata
    replaced = target.shards_of(existing, name, overwrite=overwrite)
    if existing is None and overwrite and target.has_damaged_manifest():
        metadata |= {MANIFEST, *(target.metadata_of_damaged() if replaced else ())}
    target.check_foreign(wanted_metadata(options.formats, options.schema, options.on_error), metadata)
    existing = _begin_journal(target, journal, existing, begun, overwrite=overwrite)
    journal.note_left(replaced, metadata)
    return Start(info, begun, existing, metadata, replaced)


def _named(target: Directory, info: Info | None, existing: Manifest | None, begun: Begin | None) -> Info:
    """Return the info of the user, else of the existing dataset: one that was moved keeps its name."""
    info = info or (Info() if existing is None else existing.info)
    earlier = begun.name if begun else existing.name if existing else dataset_name(target.path)
    return replace(info, name=info.name or earlier, version=info.version or dataset_version(target.path))


def _begin_journal(
    target: Directory, journal: Journal, existing: Manifest | None, begun: Begin, *, overwrite: bool
) -> Manifest | None:
    """Make the journal that of this build, and return the existing dataset if it is to be brought up to date.

    A build that differs from the one of the existing dataset is an error that says in what. An unfinished build
    protects nothing: another one takes its place, and keeps the finished shards that are still valid.
    """
    if overwrite:
        journal.begin(begun)
        return None
    built = None if existing is None else Begin(existing.name, existing.options, existing.source)
    if built == begun != journal.begun:
        journal.forget()  # an attempt at another dataset that was given up: this one exists
    before = journal.begun or built
    if before is None:
        target.check_no_shards(begun.name)
    elif before != begun and (existing is None or not target.published):
        journal.begin_again(begun)
    elif changed := "; ".join(describe_change(before.to_json(), begun.to_json())):
        what = "go on with the build that was begun here" if journal.begun else "bring this dataset up to date"
        raise BuildError(f"expected to {what}, got another one: {changed} - at {target.where}. {REBUILD}")
    if journal.begun is not None:
        return None
    journal.begin(begun)
    return existing


def take_over(journal: Journal, manifest: Manifest, *, retry: bool) -> None:
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
    journal.note(Plan(manifest.schema.to_json(), counts))
    for split, shard, *others in done:
        alternatives = tuple(RecordFile(each.file, each.bytes, each.crc32c) for each in others)
        counted = (shard.records, shard.bytes, shard.crc32c, shard.inputs, shard.ignored)
        journal.note(ShardResult(split, shard.file, *counted, alternatives=alternatives, keys=shard.keys))


def describe_change(before: Mapping[str, object], now: Mapping[str, object], where: str = "") -> list[str]:
    """Return what differs between two nested dicts, in words."""
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


def _shown(value: object) -> str:
    return "not said" if value is None else repr(value)
