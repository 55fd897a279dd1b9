"""The story of a build: list, sample, plan, write what is missing, commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from warnings import warn

import numpy as np

from ..dataset.info import Info
from ..dataset.manifest import (
    MANIFEST,
    WORK,
    Manifest,
    dataset_name,
    dataset_version,
    file_problems,
    shard_file,
)
from ..dataset.open import Opened
from ..errors import BuildError, NoExamplesError
from ..schema.schema import Schema
from .commit import Finished, describe_dataset, wanted_metadata, with_sidecars
from .duplicates import Leak, drop_duplicates, find_leaks
from .encode import DriftError, Job, lost_example
from .engines.engine import Engine, Meter, Workers
from .engines.local import Local, LostWorkerError, survives_fork
from .entries import BadExample, Begin, Commit, Plan, ShardResult, SpoolResult
from .journal import Journal, begin_build, take_over
from .listing import Inputs, Split, inputs_digest, list_splits
from .plan import Options, Task, cut_shards
from .sample import (
    FLOATS,
    Samples,
    SchemaChoice,
    choose_schema,
    count_split_shards,
    is_incomplete,
    may_multiply,
    scan_examples,
)
from .spool import Spooled, spool_splits, spool_streams
from .targets.directory import Directory
from .write import merged_images

MOST_BAD = 20  # bad examples that a result names


@dataclass(frozen=True)
class BuildResult:
    """A finished dataset, and what the build did.

    written, kept  Numbers of shards.
    leaking        Some of the contents that are in more than one split.
    drift          How the schema was widened, and for which example; empty if it was not.
    bad            The first of the examples that this build left out.
    """

    opened: Opened
    manifest: Manifest
    written: int
    kept: int
    seconds: float
    leaking: tuple[Leak, ...] = ()
    drift: str = ""
    bad: tuple[BadExample, ...] = ()


def run_build(
    source: object, target: Directory, options: Options, engine: Engine, info: Info | None, *, overwrite: bool = False
) -> BuildResult:
    """Build a dataset into a directory. The same build again continues after an interruption."""
    started = time.monotonic()
    splits = list_splits(source, options.order, options.seed)
    engine = _without_forks(engine, splits)
    with target.open_journal() as journal:
        try:
            with engine.start(target.destination) as workers:
                build = _Build(target, options, workers, Meter(engine.progress), journal)
                result = build.run(splits, info, overwrite=overwrite)
        except KeyboardInterrupt:
            kept = f"{len(journal.shards)} finished shards are kept"
            raise KeyboardInterrupt(f"stopped: {kept}. Build again to go on - at {target.where}") from None
    return replace(result, seconds=time.monotonic() - started)


def _without_forks(engine: Engine, splits: list[Split]) -> Engine:
    """Return the engine; with one process if the user gave no number, and forks of this process might hang."""
    if not isinstance(engine, Local) or engine.workers or engine.processes == 1 or survives_fork():
        return engine
    if all(split.stream is not None or Inputs(split.source).are_ours for split in splits):
        return engine
    told = "TensorFlow has run in this process, and code that uses it waits forever in a fork: one process builds"
    warn(f"{told}. Build before TensorFlow runs, or say workers=... if load() does not use it", stacklevel=4)
    return replace(engine, workers=1)


@dataclass(frozen=True)
class _Start:
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


@dataclass
class _Written:
    """What tasks have made so far, in this run and in earlier ones."""

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
    def results(self) -> list[SpoolResult | ShardResult]:
        """Results by name, however they came."""
        return sorted([*self.spools, *self.shards.values()], key=lambda each: each.file)

    @property
    def bad(self) -> list[BadExample]:
        """The examples that could not be stored."""
        return [example for each in self.results for example in each.bad]


@dataclass(frozen=True)
class _Build:
    """What every step of a build uses."""

    target: Directory
    options: Options
    workers: Workers
    meter: Meter
    journal: Journal

    def run(self, splits: list[Split], info: Info | None, *, overwrite: bool) -> BuildResult:
        start = self._begin(splits, info, overwrite=overwrite)
        if start.existing is not None and self.options.retry and not start.existing.found.get("bad", 0):
            return self._up_to_date(start.existing)
        if start.existing is not None:
            take_over(self.journal, start.existing, retry=self.options.retry)
        self.target.sweep_temporary(start.begun.name)
        try:
            written = self._make(start, splits)
        except LostWorkerError as lost:
            task = getattr(lost.item, "task", lost.item)
            split = next((split for split in splits if split.name == getattr(task, "split", None)), None)
            raise (lost if split is None else lost_example(split, lost)) from None
        return self._commit(start, written)

    def _make(self, start: _Start, splits: list[Split]) -> _Written:
        """Choose the schema, and write the shards; again with a wider schema if an example does not fit."""
        choice, samples = choose_schema(splits, self.options, self.journal.plan, self.workers)
        job = self._job(splits, choice)
        if self.journal.plan is None and not choice.firm and (self.options.full or is_incomplete(choice, samples)):
            choice = scan_examples(job, choice, splits, self.workers, self.meter)
            job = replace(job, schema=choice.schema, firm=True)
        spools: list[SpoolResult] = []
        if any(split.stream is not None for split in splits):
            job, splits, spools = spool_streams(job, splits, self.workers, self.journal, self.meter)
        try:
            return self._write(start, splits, samples, job, choice, spools)
        except DriftError as drift:
            choice = replace(scan_examples(job, choice, splits, self.workers, self.meter), drift=str(drift))
            job = replace(job, schema=choice.schema, firm=True)
            return self._write(start, splits, samples, job, choice, spools)

    # Begin

    def _begin(self, splits: list[Split], info: Info | None, *, overwrite: bool) -> _Start:
        """Finish an interrupted commit, and refuse a target that holds something else; nothing is written before."""
        target, journal = self.target, self.journal
        existing = target.existing(damaged=overwrite)
        before = None if overwrite else journal.begun
        info = self._named(info, None if overwrite else existing, before)
        sources = {split.name: split.fingerprint() for split in splits}
        assert info.name is not None
        begun = Begin(info.name, self.options.to_json(), sources)
        if journal.commit is not None:
            target.sweep(target.publish(journal.commit), journal.commit.replaced)
            if journal.begun != begun:
                journal.forget()
            existing = target.existing()
        metadata = target.metadata_of(existing) | journal.metadata
        replaced = target.shards_of(existing, begun.name, overwrite=overwrite)
        if existing is None and overwrite and target.has_damaged_manifest():
            metadata |= {MANIFEST, *(target.metadata_of_damaged() if replaced else ())}
        wanted = wanted_metadata(self.options.formats, self.options.schema, self.options.on_error)
        target.check_foreign(wanted, metadata)
        if existing is None and journal.begun is None and not overwrite:
            target.check_no_shards(begun.name)
        replaceable = {"overwrite": overwrite, "published": target.published}
        existing = begin_build(journal, existing, begun, target.where, **replaceable)
        journal.note_left(replaced, metadata)
        return _Start(info, begun, existing, metadata, replaced)

    def _named(self, info: Info | None, existing: Manifest | None, begun: Begin | None) -> Info:
        """Return the info of the user, else of the existing dataset: one that was moved keeps its name."""
        info = info or (Info() if existing is None else existing.info)
        if self.options.retry and begun is None and existing is None:
            raise BuildError(
                f"expected a dataset whose bad examples can be tried again, got none - at {self.target.where}"
            )
        earlier = begun.name if begun else existing.name if existing else dataset_name(self.target.path)
        return replace(info, name=info.name or earlier, version=info.version or dataset_version(self.target.path))

    def _job(self, splits: list[Split], choice: SchemaChoice) -> Job:
        options, workers = self.options, self.workers
        return Job(
            directory=self.target.directory,
            sources={split.name: split.source for split in splits if split.stream is None},
            known={split.name: split.known for split in splits},
            schema=choice.schema,
            declared=options.schema is not None,
            firm=choice.firm,
            formats=options.formats,
            on_error=options.on_error,
            chunk_bytes=workers.chunk_bytes,
            short_floats=options.short_floats,
            upload=self.target.upload(self.journal) if workers.remote else None,
            sync=workers.sync and not self.target.sends,  # files that are sent may get lost on this machine
        )

    # Write

    def _write(
        self,
        start: _Start,
        splits: list[Split],
        samples: Samples,
        job: Job,
        choice: SchemaChoice,
        spools: list[SpoolResult],
    ) -> _Written:
        """Write the shards that are missing. Splits whose number of examples is unknown are spooled first."""
        options, workers, journal, meter = self.options, self.workers, self.journal, self.meter
        unspooled = [split for split in splits if not isinstance(split.source, Spooled)]
        chosen = {s.name for s in unspooled if options.dedupe or may_multiply(s, workers) or s.by_file()}
        if chosen:
            job, splits, more = spool_splits(job, splits, chosen, self.target, workers, journal, meter)
            spools = [*spools, *more]
        written = _Written(choice, job.schema, spools)
        self._count_errors(written, spools)
        if options.dedupe:
            written.duplicates = drop_duplicates(splits, job.schema, across=options.dedupe == "across")
        start.info.check(job.schema)
        written.tasks = self._plan(start, splits, samples, job, choice)
        written.shards, written.staged = self._finished_shards(written.tasks, splits)
        self._count_errors(written, written.shards.values())
        missing = [task for task in written.tasks if task.file not in written.shards]
        meter.begin("writing", sum(len(task.rows) for task in missing))
        job = replace(job, directory=self.target.directory / WORK)
        with closing(self.target.write(workers, job, missing, meter)) as results:
            for _, shard in results:
                journal.note(shard)
                written.shards[shard.file] = shard
                written.staged.add(shard.file)
                written.new += 1
                self._count_errors(written, [shard])
        return written

    def _plan(self, start: _Start, splits: list[Split], samples: Samples, job: Job, choice: SchemaChoice) -> list[Task]:
        """Cut every split into shards; refuse a target where foreign files have their names."""
        before, format = self.journal.plan, job.formats[0]
        if before and set(before.shards) == {split.name for split in splits}:
            counts = dict(before.shards)
        else:
            shards = self.options.shards
            counts = {s.name: count_split_shards(s, samples[s.name], job.schema, shards, format) for s in splits}
        plan = Plan(job.schema.to_json(), counts, job.firm, choice.drift, choice.floats)
        if before is None or before.schema != plan.schema or before.shards != counts:
            self._check_plan(start, job, plan)
            self.journal.note_plan(plan)
        tasks = []
        for split in splits:
            count = counts[split.name]
            for number, rows in enumerate(np.split(split.rows, cut_shards(len(split.rows), count)[1:-1])):
                file = shard_file(start.begun.name, split.name, format.name, number, count)
                tasks.append(Task(split.name, file, rows, split.keys_of(rows)))
        return tasks

    def _check_plan(self, start: _Start, job: Job, plan: Plan) -> None:
        own = {*start.replaced, *self.journal.left}
        if self.journal.plan is not None:
            own |= start.begun.shard_names(self.journal.plan.shards)
        wanted = wanted_metadata(job.formats, job.schema, self.options.on_error)
        shards = sorted(with_sidecars(start.begun.shard_names(plan.shards)))
        try:
            self.target.check_foreign([*wanted, *shards], start.metadata | with_sidecars(own))
        except BuildError:
            self.journal.check_alone()  # before entries are deleted: they may be those of another process
            self.journal.forget()
            raise

    def _finished_shards(self, tasks: Sequence[Task], splits: list[Split]) -> tuple[dict[str, ShardResult], set[str]]:
        """Return the shards that are undamaged and made from what the source has now; and which wait to be moved."""
        sources = {split.name: Inputs(split.source) for split in splits}
        current = {}
        for task in tasks:
            shard = self.journal.shards.get(task.file)
            if shard is None or (shard.bad and self.options.retry):
                continue
            made_from = sources[task.split].made_from
            checked = shard.inputs and not self.options.retry
            if not checked or shard.inputs == inputs_digest([made_from(task.rows, task.keys)]):
                current[task.file] = shard
        staged, in_place = self.target.undamaged(current, self.workers)
        return {file: shard for file, shard in current.items() if file in staged | in_place}, staged

    def _count_errors(self, written: _Written, results: Iterable[SpoolResult | ShardResult]) -> None:
        """Abort when more examples are bad than the user allows."""
        most = self.options.max_errors
        for result in results:
            written.errors += len(result.bad)
            if most is not None and written.errors > most:
                last = f"{result.bad[-1].error} - in example {result.bad[-1].key!r}, from {result.bad[-1].place}"
                raise BuildError(f"expected at most {most} bad examples, got {written.errors}: the last is {last}")

    # Commit

    def _commit(self, start: _Start, written: _Written) -> BuildResult:
        """Publish the dataset, unless the existing one is the same."""
        target, existing = self.target, start.existing
        shards = [written.shards[task.file] for task in written.tasks]
        if not any(shard.records for shard in shards):
            raise NoExamplesError("expected examples, got none that could be stored", target.where)
        unchanged = not written.new and existing is not None and existing.info == start.info
        if existing is not None and unchanged and not file_problems(target.destination, existing):
            return self._up_to_date(existing, written)
        leaks, leaking = self._leaks([(shard.split, shard.file) for shard in shards], written.staged)
        found = self._findings(start, written, shards, leaks)
        finished = Finished(written.schema, shards, written.bad, found)
        manifest = describe_dataset(start.info, start.begun, self.options.formats, finished)
        commit = Commit(
            manifest.to_json(),
            staged=tuple(sorted(file for shard in shards if shard.file in written.staged for file in shard.files)),
            quarantine=tuple(written.bad) if self.options.on_error == "quarantine" else (),
            replaced=tuple(sorted({*start.replaced, *self.journal.left})),
            stale=tuple(sorted(start.metadata)),
        )
        target.check_commit(manifest, commit, start.metadata | with_sidecars(commit.replaced))
        self.journal.note(commit)
        manifest = target.publish(commit)
        target.sweep(manifest, commit.replaced)
        return self._result(manifest, written.new, leaking, written)

    def _findings(self, start: _Start, written: _Written, shards: list[ShardResult], leaks: int) -> dict[str, object]:
        """Return what the manifest reports of the examples."""
        ignored = sum(each.ignored for each in written.results)
        kept = start.existing.found.get("images", {}) if start.existing and written.new < len(shards) else {}
        noted: dict[str, object] = {
            "floats": self._inferred_floats(written),
            "images": merged_images([kept, *(shard.images for shard in shards)]),
        }
        counts = {"bad": len(written.bad), "ignored": ignored, "duplicates": written.duplicates, "leaks": leaks}
        return {**counts, **{name: content for name, content in noted.items() if content}}

    def _inferred_floats(self, written: _Written) -> dict[str, str]:
        """Return the fields of inferred floats: of Python floats, or of NumPy's float64."""
        if self.options.schema is not None:
            return {}
        leaves = [leaf for leaf in written.schema.leaves() if leaf.dtype in FLOATS]
        python = set(written.choice.floats)
        kinds = {leaf.name: "python" if leaf.name in python else "numpy" for leaf in leaves}
        return {leaf.name: kinds[leaf.name] for leaf in leaves if leaf.dtype == "float64" or leaf.name in python}

    def _leaks(self, shards: list[tuple[str, str]], staged: set[str]) -> tuple[int, list[Leak]]:
        """Count the contents that are in more than one split, and name some."""
        splits: dict[str, list[str]] = {}
        for split, file in shards:
            splits.setdefault(split, []).append(file)
        if len(splits) < 2:
            return 0, []
        return find_leaks(self.target.shard_paths(splits, staged), self.target.fetch_keys)

    def _up_to_date(self, manifest: Manifest, written: _Written | None = None) -> BuildResult:
        """Return the existing dataset, which is what was asked for."""
        shards = [(name, shard.file) for name, shards in manifest.splits.items() for shard in shards]
        leaking = self._leaks(shards, set())[1] if manifest.found.get("leaks", 0) else []
        return self._result(manifest, 0, leaking, written)

    def _result(self, manifest: Manifest, new: int, leaking: list[Leak], written: _Written | None) -> BuildResult:
        self.target.finish()
        kept = sum(map(len, manifest.splits.values())) - new
        drift, bad = (written.choice.drift, written.bad[:MOST_BAD]) if written else ("", [])
        return BuildResult(self.target.opened(manifest), manifest, new, kept, 0.0, tuple(leaking), drift, tuple(bad))
