"""The story of a build: list, sample, plan, write what is missing, commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from warnings import warn

import numpy as np

from ..dataset.manifest import WORK, Info, Manifest, shard_file
from ..dataset.open import Opened
from ..errors import BuildError
from .commit import Made, find_leaking, is_up_to_date, publish_build
from .duplicates import Leak, drop_duplicates
from .encode import DriftError, Job, lost_example
from .engines.engine import Engine, Meter, Workers
from .engines.local import Local, LostWorkerError, survives_fork
from .entries import BadExample, Plan, ShardResult, SpoolResult
from .journal import Journal
from .listing import Split, inputs_digest, list_splits, made_from
from .plan import Options, Task, cut_shards
from .resume import Start, start_build, take_over
from .sample import (
    Samples,
    SchemaChoice,
    choose_schema,
    count_split_shards,
    is_incomplete,
    may_multiply,
    scan_examples,
)
from .spool import Spooled, spool_splits, spool_streams
from .targets.directory import Directory, wanted_metadata, with_sidecars

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
    if all(split.stream is not None or not split.listed.runs_user_code for split in splits):
        return engine
    told = "TensorFlow has run in this process, and code that uses it waits forever in a fork: one process builds"
    warn(f"{told}. Build before TensorFlow runs, or say workers=... if load() does not use it", stacklevel=4)
    return replace(engine, workers=1)


@dataclass(frozen=True)
class _Build:
    """What every step of a build uses."""

    target: Directory
    options: Options
    workers: Workers
    meter: Meter
    journal: Journal

    def run(self, splits: list[Split], info: Info | None, *, overwrite: bool) -> BuildResult:
        """Begin or resume, make the shards, and publish them; or keep the existing dataset if it is up to date."""
        options, target, journal = self.options, self.target, self.journal
        start = start_build(target, journal, options, splits, info, overwrite=overwrite)
        if start.existing is not None and options.retry and not start.existing.found.get("bad", 0):
            return self._result(start.existing, find_leaking(target, start.existing), None)
        if start.existing is not None:
            take_over(journal, start.existing, retry=options.retry)
        target.sweep_temporary(start.begun.name)
        try:
            made = self._make(start, splits)
        except LostWorkerError as lost:
            task = getattr(lost.item, "task", lost.item)
            split = next((split for split in splits if split.name == getattr(task, "split", None)), None)
            raise (lost if split is None else lost_example(split, lost)) from None
        if start.existing is not None and is_up_to_date(target, start, made):
            return self._result(start.existing, find_leaking(target, start.existing), made)
        manifest, leaking = publish_build(target, journal, options, start, made)
        return self._result(manifest, leaking, made)

    def _result(self, manifest: Manifest, leaking: Sequence[Leak], made: Made | None) -> BuildResult:
        self.target.finish()
        new, drift, bad = (made.new, made.choice.drift, made.bad[:MOST_BAD]) if made else (0, "", [])
        kept = sum(map(len, manifest.splits.values())) - new
        return BuildResult(self.target.opened(manifest), manifest, new, kept, 0.0, tuple(leaking), drift, tuple(bad))

    def _make(self, start: Start, splits: list[Split]) -> Made:
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

    def _job(self, splits: list[Split], choice: SchemaChoice) -> Job:
        """Return what all tasks share."""
        options, workers = self.options, self.workers
        return Job(
            directory=self.target.directory,
            sources={split.name: split.listed for split in splits if split.stream is None},
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
        start: Start,
        splits: list[Split],
        samples: Samples,
        job: Job,
        choice: SchemaChoice,
        spools: list[SpoolResult],
    ) -> Made:
        """Write the shards that are missing. Splits whose number of examples is unknown are spooled first."""
        options, workers, journal, meter = self.options, self.workers, self.journal, self.meter
        unspooled = [split for split in splits if not isinstance(split.source, Spooled)]
        chosen = {s.name for s in unspooled if options.dedupe or may_multiply(s, workers) or s.by_file()}
        if chosen:
            job, splits, more = spool_splits(job, splits, chosen, self.target, workers, journal, meter)
            spools = [*spools, *more]
        made = Made(choice, job.schema, spools)
        self._count_errors(made, spools)
        if options.dedupe:
            made.duplicates = drop_duplicates(splits, job.schema, across=options.dedupe == "across")
        start.info.check(job.schema)
        made.tasks = self._plan(start, splits, samples, job, choice)
        made.shards, made.staged = self._finished_shards(made.tasks, splits)
        self._count_errors(made, made.shards.values())
        missing = [task for task in made.tasks if task.file not in made.shards]
        meter.begin("writing", sum(len(task.rows) for task in missing))
        job = replace(job, directory=self.target.directory / WORK)
        with closing(self.target.write(workers, job, missing, meter)) as results:
            for _, shard in results:
                journal.note(shard)
                made.shards[shard.file] = shard
                made.staged.add(shard.file)
                made.new += 1
                self._count_errors(made, [shard])
        return made

    def _plan(self, start: Start, splits: list[Split], samples: Samples, job: Job, choice: SchemaChoice) -> list[Task]:
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

    def _check_plan(self, start: Start, job: Job, plan: Plan) -> None:
        """Refuse a target where foreign files have the names of shards or metadata."""
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
        sources = {split.name: split.listed for split in splits}
        current = {}
        for task in tasks:
            shard = self.journal.shards.get(task.file)
            if shard is None or (shard.bad and self.options.retry):
                continue
            checked = shard.inputs and not self.options.retry
            if not checked or shard.inputs == inputs_digest([made_from(sources[task.split], task.rows, task.keys)]):
                current[task.file] = shard
        staged, in_place = self.target.undamaged(current, self.workers)
        undamaged = staged | in_place
        return {file: shard for file, shard in current.items() if file in undamaged}, staged

    def _count_errors(self, made: Made, results: Iterable[SpoolResult | ShardResult]) -> None:
        """Abort when more examples are bad than the user allows."""
        most = self.options.max_errors
        for result in results:
            made.errors += len(result.bad)
            if most is not None and made.errors > most:
                last = f"{result.bad[-1].error} - in example {result.bad[-1].key!r}, from {result.bad[-1].place}"
                raise BuildError(f"expected at most {most} bad examples, got {made.errors}: the last is {last}")
