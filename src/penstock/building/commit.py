"""The commit of a build: describe what was made, and publish it. The manifest comes last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .._core import __version__
from ..dataset.manifest import Info, Manifest, ShardEntries, ShardEntry
from ..dataset.provenance import file_problems
from ..errors import NoExamplesError
from ..records.formats import Format
from ..schema.schema import Schema
from .duplicates import Leak, find_leaks
from .entries import BadExample, Begin, Commit, ShardResult, SpoolResult
from .journal import Journal
from .plan import Options, Task
from .resume import Start
from .sample import FLOATS, SchemaChoice
from .targets.directory import Directory, with_sidecars
from .write import merged_images


@dataclass
class Made:
    """What tasks have made so far, in this run and in earlier ones.

    shards      Finished shards by file.
    staged      Files of the shards that wait to be moved into place.
    new         Number of shards of this run.
    errors      Number of bad examples.
    duplicates  Number of examples that were dropped.
    """

    choice: SchemaChoice
    schema: Schema
    spools: Sequence[SpoolResult]
    tasks: Sequence[Task] = ()
    shards: dict[str, ShardResult] = field(default_factory=dict)
    staged: set[str] = field(default_factory=set)
    new: int = 0
    errors: int = 0
    duplicates: int = 0

    @property
    def in_order(self) -> list[ShardResult]:
        """The shards of all splits, in their order."""
        return [self.shards[task.file] for task in self.tasks]

    @property
    def results(self) -> list[SpoolResult | ShardResult]:
        """All results by name, in whatever order they came."""
        return sorted([*self.spools, *self.shards.values()], key=lambda each: each.file)

    @property
    def bad(self) -> list[BadExample]:
        """The examples that could not be stored."""
        return [example for each in self.results for example in each.bad]


def is_up_to_date(target: Directory, start: Start, made: Made) -> bool:
    """Return True if the existing dataset is what was asked for."""
    if start.existing is None or made.new or start.existing.info != start.info:
        return False
    return not file_problems(target.destination, start.existing)


def publish_build(
    target: Directory, journal: Journal, options: Options, start: Start, made: Made
) -> tuple[Manifest, list[Leak]]:
    """Publish the shards as a dataset; return its manifest, and contents that are in more than one split."""
    shards = made.in_order
    if not any(shard.records for shard in shards):
        raise NoExamplesError("expected examples, got none that could be stored", target.where)
    leaks, leaking = _find_leaks(target, [(shard.split, shard.file) for shard in shards], made.staged)
    found = _findings(options, start, made, leaks)
    manifest = describe_dataset(start.info, start.begun, made.schema, options.formats, shards, found)
    commit = Commit(
        manifest.to_json(),
        staged=tuple(sorted(file for shard in shards if shard.file in made.staged for file in shard.files)),
        quarantine=tuple(made.bad) if options.on_error == "quarantine" else (),
        replaced=tuple(sorted({*start.replaced, *journal.left})),
        stale=tuple(sorted(start.metadata)),
    )
    target.check_commit(manifest, commit, start.metadata | with_sidecars(commit.replaced))
    journal.note(commit)
    manifest = target.publish(commit)
    target.sweep(manifest, commit.replaced)
    return manifest, leaking


def find_leaking(target: Directory, manifest: Manifest) -> list[Leak]:
    """Return contents of a dataset that are in more than one split."""
    if not manifest.found.get("leaks", 0):
        return []
    files = [(split, shard.file) for split, shards in manifest.splits.items() for shard in shards]
    return _find_leaks(target, files, set())[1]


def _find_leaks(target: Directory, shards: list[tuple[str, str]], staged: set[str]) -> tuple[int, list[Leak]]:
    """Count the contents that are in more than one split, and name some."""
    splits: dict[str, list[str]] = {}
    for split, file in shards:
        splits.setdefault(split, []).append(file)
    if len(splits) < 2:
        return 0, []
    return find_leaks(target.shard_paths(splits, staged), target.fetch_keys)


def _findings(options: Options, start: Start, made: Made, leaks: int) -> dict[str, object]:
    """Return what the manifest reports of the examples."""
    kept = start.existing.found.get("images", {}) if start.existing and made.new < len(made.tasks) else {}
    noted: dict[str, object] = {
        "floats": {} if options.schema is not None else _inferred_floats(made.schema, made.choice.floats),
        "images": merged_images([kept, *(shard.images for shard in made.in_order)]),
    }
    ignored = sum(each.ignored for each in made.results)
    counts = {"bad": len(made.bad), "ignored": ignored, "duplicates": made.duplicates, "leaks": leaks}
    return {**counts, **{name: content for name, content in noted.items() if content}}


def _inferred_floats(schema: Schema, python: Sequence[str]) -> dict[str, str]:
    """Return the fields of inferred floats: of Python floats, or of NumPy's float64."""
    leaves = [leaf for leaf in schema.leaves() if leaf.dtype in FLOATS]
    kinds = {leaf.name: "python" if leaf.name in python else "numpy" for leaf in leaves}
    return {leaf.name: kinds[leaf.name] for leaf in leaves if leaf.dtype == "float64" or leaf.name in python}


def describe_dataset(
    info: Info,
    begun: Begin,
    schema: Schema,
    formats: Sequence[Format],
    shards: list[ShardResult],
    found: dict[str, object],
) -> Manifest:
    """Return the manifest of what was built."""
    names = [format.name for format in formats]
    first, *others = (_entries(shards, at) for at in range(len(names)))
    made = {"penstock": __version__, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    asked = (dict(begun.options), dict(begun.source))
    alternatives = dict(zip(names[1:], others, strict=True))
    return Manifest(begun.name, schema, first, *asked, found, made, info, names[0], alternatives, files={})


def _entries(shards: list[ShardResult], format: int) -> ShardEntries:
    """Return the shards of each split in one of the formats, by its number."""
    splits: dict[str, list[ShardEntry]] = {}
    for shard in shards:
        written, bad = shard.formats[format], len(shard.bad)
        counts = (shard.records, written.bytes, written.crc32c, shard.inputs, shard.ignored, bad, shard.keys)
        splits.setdefault(shard.split, []).append(ShardEntry(written.file, *counts))
    return {split: tuple(entries) for split, entries in splits.items()}
