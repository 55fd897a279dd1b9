"""`build`: list, decide the schema, plan, write what is missing, commit."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from ..dataset.manifest import MANIFEST, WORK, Info, Manifest, dataset_name, dataset_version, in_format, shard_file
from ..dataset.provenance import file_problems
from ..dataset.tfds import is_tfds_name, metadata_files
from ..errors import BuildError, NoExamplesError, SchemaError, check_type
from ..records.codec import default_threads
from ..records.formats import Format
from ..records.tfrecord import TFRecord
from ..schema.inference import widen
from ..schema.schema import Schema
from ..sources.tfds_builder import GeneratedSplits
from ..storage.files import checked_path
from ..storage.store import is_url
from .attempts import run_tasks
from .commit import Leak, describe_dataset, sweep_temporary
from .duplicates import drop_duplicates
from .encode import DriftError, Job, Outcome
from .engines.engine import Engine, Workers
from .engines.local import Local, LostWorkerError, survives_fork
from .inputs import Inputs, check_outside, inputs_digest
from .journal import Journal
from .listing import Split, infer_schema, list_splits
from .options import Options, Quarantine
from .plan import cut_shards
from .progress import Meter
from .report import Built
from .resume import begin, finish_commit, take_over, whole_files
from .sample import scan
from .shard_parts import write_shards
from .spool import Spooled, spool_file, spool_name, spool_stream
from .targets.directory import Folder
from .targets.open import open_target
from .targets.ownership import (
    QUARANTINE,
    check_foreign,
    is_damaged_manifest,
    metadata_of,
    metadata_of_damaged,
    planned_files,
    shards_of,
    wanted_metadata,
    with_sidecars,
)
from .targets.plain_files import build_file, build_objects, names_file
from .write import Task, merged_images

MOST_BAD = 20  # bad examples that `Built` names
SPOOL_TASKS = 64  # that a split whose examples become many is cut into


def build(
    source: Any,
    path: str | Path,
    *,
    format: str | Format | Sequence[str | Format] = "tfrecord",
    shards: int | None = None,
    schema: Schema | Mapping[str, Any] | str | None = None,
    order: str = "hash",
    seed: int = 0,
    on_error: str | Quarantine = "raise",
    workers: int | None = None,
    engine: Engine | None = None,
    info: Info | None = None,
    overwrite: bool = False,
) -> Built:
    """Build a dataset from a source into a directory. The same build again goes on after whatever has cut it off.

    build([{"x": 1}, {"x": 2}], "data/toy")
    build(image_folder("photos/"), "data/photos", shards=8, on_error="quarantine")

    path       a directory, or the URL of one: s3://, gs://, az://, ais://; "tfds:name" or "tfds:name:1.0.0" is the one
               where TFDS looks for that name; plain files, "train.record" or "{split}/{000..}.tfrecord", and no dataset
    format     "tfrecord" or "array_record", or TFRecord(...) or ArrayRecord(...) with options; a list for both at once
    shards     how many for each split; by size unless told
    schema     what examples hold; found out unless told, from a sample or, with "full", from every example
    order      "hash": by seed and key, whatever the order of the source; "source": as they come; "tfds": by key, as
               TFDS orders them
    on_error   "raise", "skip" or "quarantine" examples that cannot be stored; Quarantine(max_errors=...)
    workers    processes; Local(workers=..., max_memory=..., progress=...) as `engine` says more
    engine     Local(...), or Ray(...) for the machines of a cluster: the same bytes
    info       what people should know of it: Info(name=..., version=..., description=...)
    overwrite  build anew what stands there, or was begun there, even if it was something else
    """
    if engine is not None and workers is not None:
        raise SchemaError("expected workers or an engine, got both", hint="Local(workers=...)")
    if engine is not None:
        check_type(engine, Engine, "Local(...) or Ray(...)", "engine")
    if info is not None:
        check_type(info, Info, "Info(...)", "info")
    check_type(path, (str, os.PathLike), "a path", "build")
    if not os.fspath(path):
        raise SchemaError("expected a path, got an empty one", "build", "The folder that you are in is .")
    path = path if is_tfds_name(path) else checked_path(path, "build")
    check_outside(source, path)
    options: dict[str, Any] = {"format": format, "shards": shards, "schema": schema, "order": order, "seed": seed}
    options |= {"on_error": on_error, "workers": workers, "engine": engine, "info": info, "overwrite": overwrite}
    if names_file(path):
        if is_url(path):
            return build_objects(_build_folder, source, str(path), options)
        return build_file(_build_folder, source, Path(path), options)
    return _build_folder(source, path, **options)


def _build_folder(
    source: Any,
    path: str | Path,
    *,
    format: str | Format | Sequence[str | Format],
    shards: int | None,
    schema: Schema | Mapping[str, Any] | str | None,
    order: str,
    seed: int,
    on_error: str | Quarantine,
    workers: int | None,
    engine: Engine | None,
    info: Info | None,
    overwrite: bool,
    published: bool = True,
    short_floats: bool = False,
) -> Built:
    """Build a dataset into a directory.

    published     False for a hidden folder, whose dataset may be replaced
    short_floats  store inferred Python floats as float32
    """
    if isinstance(source, GeneratedSplits):
        schema = source.schema if schema is None else schema
        info = (info or Info()).over(source.info)
    options = Options.checked(
        source, format=format, shards=shards, schema=schema, order=order, seed=seed, on_error=on_error
    )
    options = replace(options, short_floats=short_floats)
    splits = list_splits(source, order, seed)
    engine = _unforked(engine or Local(workers=workers), splits)
    place = open_target(path, info, published=published)
    with place.journal() as journal:
        try:
            with engine.start(place.destination) as started:
                meter = Meter(engine.progress)
                return _Build(place, options, started, meter, journal, splits).run(info, overwrite)
        except KeyboardInterrupt:
            kept = f"{len(journal.shards)} finished shards are kept"
            raise KeyboardInterrupt(f"stopped: {kept}. Build again to go on - at {place.where}") from None


def _unforked(engine: Engine, splits: list[Split]) -> Engine:
    """The engine; with one process where nobody has said how many, and forks of this one might wait forever."""
    if not isinstance(engine, Local) or engine.workers or engine.processes == 1 or survives_fork():
        return engine
    if all(split.stream is not None or Inputs(split.source).are_ours for split in splits):
        return engine
    told = "TensorFlow has run in this process, and code that uses it waits forever in a fork: one process builds"
    warn(f"{told}. Build before TensorFlow runs, or say workers=... if load() does not use it", stacklevel=3)
    return replace(engine, workers=1)


class _Build:
    """One build, step by step."""

    def __init__(
        self,
        place: Folder,
        options: Options,
        workers: Workers,
        meter: Meter,
        journal: Journal,
        splits: list[Split],
    ) -> None:
        self.place = place
        self.directory = place.directory
        self.options = options
        self.workers = workers
        self.meter = meter
        self.journal = journal
        self.splits = splits
        self.drift = ""
        self.floats: list[str] = []
        self.outcomes: dict[str, Outcome] = {}
        self.bad = 0  # examples of theirs
        self.staged: set[str] = set()
        self.duplicates = 0
        self.started = time.monotonic()

    def run(self, info: Info | None, overwrite: bool) -> Built:
        before = self.place.standing(broken=overwrite)
        self.info = self._named(info, None if overwrite else before, None if overwrite else self.journal.begun)
        self.begun: dict[str, Any] = {
            "name": self.info.name,
            "options": self.options.to_json(),
            "source": {split.name: split.fingerprint() for split in self.splits},
        }
        if self.journal.commit is not None:
            finish_commit(self.place, self.journal, self.begun)
            before = self.place.standing()
        self._check_begin(before, overwrite)
        standing = begin(self.place, self.journal, before, self.begun, overwrite)
        self.journal.note_left(set(self.replaced), self.metadata)
        if self.options.retry and standing is not None and not standing.found.get("bad", 0):
            return self._up_to_date(standing)
        if standing is not None:
            take_over(self.journal, standing, self.options.retry)
        sweep_temporary(self.directory, self.begun["name"])
        try:
            job = self._spool_streams(self._job())
            try:
                written = self._write(job)
            except DriftError as drift:
                self.drift = str(drift)
                written = self._write(self._full_pass(job))
        except LostWorkerError as lost:
            raise self._lost(lost) from None
        return self._commit(standing, written)

    def _lost(self, error: LostWorkerError) -> BuildError:
        """The error that names the example on which worker processes end, if it is known."""
        task = getattr(error.item, "task", error.item)
        split = next((split for split in self.splits if split.name == getattr(task, "split", None)), None)
        return error if split is None else split.lost(error)

    def _check_begin(self, before: Manifest | None, overwrite: bool) -> None:
        """Before anything is written: refuse a directory with foreign files of the names that the build writes."""
        self.metadata = metadata_of(self.place, before) | self.journal.metadata
        self.replaced = sorted(shards_of(self.place, before, self.begun["name"], overwrite))
        own = set(self.metadata)
        if before is None and overwrite and is_damaged_manifest(self.place):
            own |= {MANIFEST, *(metadata_of_damaged(self.place) if self.replaced else ())}
        options = self.options
        check_foreign(self.place, wanted_metadata(options.formats, options.schema, options.on_error), own)
        self.metadata = own

    def _check_plan(self, job: Job, plan: dict[str, Any]) -> None:
        """Before any shard is written: the same for the files whose names follow from the schema."""
        shards = planned_files(self.begun, plan)
        own = {*self.replaced, *self.journal.left}
        if self.journal.plan is not None:
            own |= planned_files(self.begun, self.journal.plan)
        wanted = wanted_metadata(job.formats, job.schema, self.options.on_error)
        try:
            check_foreign(self.place, [*wanted, *sorted(with_sidecars(shards))], self.metadata | with_sidecars(own))
        except BuildError:
            self.journal.check_alone()  # before lines are deleted: they may be those of another process
            self.journal.forget()
            raise

    def _named(self, info: Info | None, standing: Manifest | None, begun: dict[str, Any] | None) -> Info:
        """What was said of the dataset; else what it says itself: one that was moved keeps its name; else its path."""
        info = info or (Info() if standing is None else standing.info)
        begun = begun or (standing.begun if standing else None)
        if self.options.retry and begun is None:
            raise BuildError(
                f"expected a dataset whose bad examples can be tried again, got none - at {self.place.where}"
            )
        name = info.name or (begun["name"] if begun else dataset_name(self.place.path))
        return replace(info, name=name, version=info.version or dataset_version(self.place.path))

    # The schema

    def _job(self) -> Job:
        """What tasks share; the schema is the declared one, that of the plan that is there, or inferred."""
        plan = self.journal.plan
        if self.options.schema is not None:
            schema, firm = self.options.schema, True
        elif plan is not None:
            schema, firm = Schema.from_json(plan["schema"]), bool(plan.get("firm"))
            self.drift, self.floats = plan.get("drift", ""), plan.get("floats", [])
        else:
            schema, firm = Schema({}), False
        if plan is None and not (schema and self.options.counts_shards):
            for split in self.splits:
                on_error = "skip" if schema else self.options.on_error  # for sizes alone, what fails can wait
                split.look(on_error, self.workers)
        known = {split.name: split.known for split in self.splits}
        if not schema:
            short = self.options.short_floats
            schema = infer_schema(self.splits, self.options.on_error, short_floats=short)
            self.floats = self._python_floats(schema)
        sources = {split.name: split.source for split in self.splits if split.stream is None}
        options = self.options
        job = Job(
            directory=self.directory,
            sources=sources,
            known=known,
            schema=schema,
            declared=options.schema is not None,
            firm=firm,
            formats=options.formats,
            on_error=options.on_error,
            chunk_bytes=self.workers.chunk_bytes,
            short_floats=options.short_floats,
            target=self.place.target(self.journal) if self.workers.apart else None,
            sync=self.workers.sync and self.place.directory == self.place.destination,  # what is sent may get lost here
        )
        seen = {name for split in self.splits for _, example in split.samples for name in example}
        look = options.full or not seen <= set(schema)  # a field without a value yet
        return self._full_pass(job) if look and not firm and plan is None else job

    def _python_floats(self, schema: Schema) -> list[str]:
        """The fields of Python floats: they are float64, or float32 where the build asks for it."""
        floats = {leaf.name: leaf.dtype for leaf in schema.leaves() if leaf.dtype in ("float32", "float64")}
        if not floats:
            return []
        short = not self.options.short_floats
        other = infer_schema(self.splits, self.options.on_error, short_floats=short)
        return [leaf.name for leaf in other.leaves() if floats.get(leaf.name, leaf.dtype) != leaf.dtype]

    def _note_floats(self, before: Schema, now: Schema) -> None:
        """Fields that became floats after the sample hold Python's, which integers join."""
        floats = {leaf.name for leaf in before.leaves() if leaf.dtype in ("float32", "float64")}
        new = [leaf.name for leaf in now.leaves() if leaf.dtype in ("float32", "float64") and leaf.name not in floats]
        self.floats = [*self.floats, *(name for name in new if name not in self.floats)]

    def _full_pass(self, job: Job) -> Job:
        """Look at every example, and widen the schema to hold them all."""
        tasks = [
            Task(split.name, "a look at the examples", rows, split.keys_of(rows))
            for split in self.splits
            if split.stream is None
            for rows in np.array_split(split.rows, min(len(split.rows), SPOOL_TASKS))
        ]
        self.meter.begin("looking at every example", sum(len(task.rows) for task in tasks))
        with closing(self.workers.map(scan, job, tasks, self.meter)) as results:
            found = {id(task): schema for task, schema in results}
        schema = reduce(partial(widen, short_floats=job.short_floats), [found[id(task)] for task in tasks], job.schema)
        self._note_floats(job.schema, schema)
        return replace(job, schema=schema, firm=True)

    # Spools

    def _spool_streams(self, job: Job) -> Job:
        """Streams become files of records; the schema is widened to hold what they held."""
        streams = {split.stream.names: split.stream for split in self.splits if split.stream is not None}
        for names, stream in streams.items():
            earlier = {name: self._spooled(spool_name(name, 0)) for name in names}
            entries = {name: entry for name, entry in earlier.items() if entry is not None}
            if len(entries) < len(names):
                self.meter.begin(f"spooling {', '.join(names)}", None)
                threads = default_threads() if self.workers.apart else self.workers.processes
                own = replace(job, firm=job.declared)
                entries = spool_stream(own, stream, threads, self.meter)
                for entry in entries.values():
                    self.journal.note("spool", entry)
            for split in [split for split in self.splits if split.name in names]:
                job = self._use_spools(job, split, [entries[split.name]])
                if not job.declared:
                    job = replace(
                        job, schema=widen(job.schema, job.sources[split.name].schema, short_floats=job.short_floats)
                    )
        return job

    def _spool_parts(self, job: Job) -> Job:
        """Examples that become many, or that may be left out, are spooled first: only then their number is known.

        So are those that are best read file by file, where the records have another order.
        """
        for split in list(self.splits):
            tars = split.by_file()
            if isinstance(split.source, Spooled) or not (self.options.dedupe or split.multiplies(self.workers) or tars):
                continue
            numbers = tars or np.array_split(np.arange(len(split.rows)), min(len(split.rows), SPOOL_TASKS))
            tasks = [Task(split.name, spool_name(split.name, at), n, split.keys_of(n)) for at, n in enumerate(numbers)]
            entries = {task.file: self._spooled(task.file) for task in tasks}
            missing = [task for task in tasks if entries[task.file] is None]
            self.meter.begin(f"spooling {split.name}", None)
            spooling = replace(job, formats=(TFRecord(),))
            spooled = run_tasks(self.workers, spooling, missing, self.meter)
            with closing(self.place.brought(spooled) if job.target else spooled) as results:
                for task, outcome in results:
                    counts = {"ignored": outcome.ignored, "bad": outcome.bad}
                    files = [spool_file(task.file, job.schema, outcome)]
                    entry = {"file": task.file, "split": split.name, "files": files, **counts}
                    self.journal.note("spool", entry)
                    entries[task.file] = entry
            job = self._use_spools(job, split, [entry for entry in entries.values() if entry is not None])
        return job

    def _spooled(self, file: str) -> dict[str, Any] | None:
        """What an earlier run has spooled, if it is whole."""
        entry = self.journal.spools.get(file)
        if entry is None or len(whole_files(self.directory, entry["files"])) < len(entry["files"]):
            return None
        return entry

    def _use_spools(self, job: Job, split: Split, entries: list[dict[str, Any]]) -> Job:
        named = [file for entry in entries for file in entry["files"]]
        folder = self.directory.absolute()
        files = [(folder / file["file"], Schema.from_json(file["schema"])) for file in named]
        for entry in entries:
            self._count(Outcome(split.name, entry["file"], ignored=entry["ignored"], bad=entry["bad"]))
        spooled = Spooled(files, self.workers.worker_memory // 4, short_floats=job.short_floats)
        self.splits[self.splits.index(split)] = Split(split.name, spooled, self.options.order, self.options.seed)
        return replace(job, sources={**job.sources, split.name: spooled})

    # Shards

    def _write(self, job: Job) -> list[Outcome]:
        """The shards that were not there, written."""
        self.outcomes = {file: done for file, done in self.outcomes.items() if file.startswith(WORK)}
        self.bad = sum(len(done.bad) for done in self.outcomes.values())
        job = self._spool_parts(job)
        if self.options.dedupe:
            self.duplicates = drop_duplicates(self.splits, job.schema, across=self.options.dedupe == "across")
        self.info.check(job.schema)
        tasks = self._plan(job)
        self.tasks, self.schema = tasks, job.schema
        kept = self._kept(tasks)
        for entry in kept.values():
            self._count(entry)
        missing = [task for task in tasks if task.file not in kept]
        self.meter.begin("writing", sum(len(task.rows) for task in missing))
        written = []
        job = replace(job, directory=self.directory / WORK)
        if self.workers.apart:
            self.place.make_way(in_format(task.file, format.name) for task in missing for format in job.formats)
        with closing(self.place.received(write_shards(self.workers, job, missing, self.meter))) as results:
            for _, outcome in results:
                self.journal.note("shard", asdict(outcome))
                self._count(outcome)
                self.staged.add(outcome.file)
                written.append(outcome)
        return written

    def _plan(self, job: Job) -> list[Task]:
        """The shards of every split."""
        before = self.journal.plan
        if before and set(before["shards"]) == {split.name for split in self.splits}:
            counts = before["shards"]
        else:
            asked = (job.schema, self.options.shards, job.formats[0])
            counts = {split.name: split.count_shards(*asked) for split in self.splits}
        plan = {"schema": job.schema.to_json(), "shards": counts, "firm": job.firm, "drift": self.drift}
        plan["floats"] = self.floats
        if before is None or before["schema"] != plan["schema"] or before["shards"] != counts:
            self._check_plan(job, plan)
            self.journal.note("plan", plan)
            self._take_earlier(plan)
        tasks = []
        for split in self.splits:
            count = counts[split.name]
            for number, rows in enumerate(np.split(split.rows, cut_shards(len(split.rows), count)[1:-1])):
                file = shard_file(self.begun["name"], split.name, job.formats[0].name, number, count)
                tasks.append(Task(split.name, file, rows, split.keys_of(rows)))
        return tasks

    def _take_earlier(self, plan: dict[str, Any]) -> None:
        """Note finished shards of a build of other examples, where the schema is the same; `_kept` checks them."""
        earlier = self.journal.earlier
        if earlier is not None and earlier["plan"]["schema"] == plan["schema"]:
            for entry in earlier["shards"].values():
                self.journal.note("shard", entry)
        self.journal.earlier = None

    def _kept(self, tasks: list[Task]) -> dict[str, Outcome]:
        """Shards that are there, are whole, and are made from what the source has now."""
        sources = {split.name: Inputs(split.source) for split in self.splits}
        fresh = {}
        for task in tasks:
            entry = self.journal.shards.get(task.file)
            if entry is not None and entry["bad"] and self.options.retry:
                entry = None
            if entry is not None and entry["inputs"] and not self.options.retry:
                now = inputs_digest([sources[task.split].made_from(task.rows, task.keys)])
                entry = entry if entry["inputs"] == now else None
            if entry is not None:
                fresh[task.file] = entry
        self.staged, in_place = self.place.whole(fresh, self.workers)
        whole = self.staged | in_place
        return {file: Outcome(**entry) for file, entry in fresh.items() if file in whole}

    def _count(self, outcome: Outcome) -> None:
        before = self.outcomes.get(outcome.file)
        self.outcomes[outcome.file] = outcome
        self.bad += len(outcome.bad) - (len(before.bad) if before else 0)
        budget = self.options.max_errors
        if budget is not None and self.bad > budget:
            bad = [entry for each in self.outcomes.values() for entry in each.bad]
            last = f"{bad[-1]['error']} - in example {bad[-1]['key']!r}, from {bad[-1]['place']}"
            raise BuildError(f"expected at most {budget} bad examples, got {self.bad}: the last is {last}")

    # The end

    def _commit(self, standing: Manifest | None, written: list[Outcome]) -> Built:
        shards = [self.outcomes[task.file] for task in self.tasks]
        if not any(shard.records for shard in shards):
            raise NoExamplesError("expected examples, got none that could be stored", str(self.place.where))
        whole = standing is not None and not file_problems(self.place.destination, standing)
        if standing is not None and whole and not written and standing.info == self.info:
            return self._up_to_date(standing)
        files: dict[str, list[str]] = {}
        for shard in shards:
            files.setdefault(shard.split, []).append(shard.file)
        leaks, leaking = self.place.leaks(files, self.staged)
        bad = [entry for file in sorted(self.outcomes) for entry in self.outcomes[file].bad]  # however they came
        ignored = sum(outcome.ignored for outcome in self.outcomes.values())
        found: dict[str, Any] = {"bad": len(bad), "ignored": ignored, "duplicates": self.duplicates, "leaks": leaks}
        kept = standing.found.get("images", {}) if standing is not None and len(written) < len(shards) else {}
        images = merged_images([kept, *(shard.images for shard in shards)])
        noted = {"floats": self._inferred_floats(), "images": images}
        found |= {name: content for name, content in noted.items() if content}
        formats = [format.name for format in self.options.formats]
        manifest = describe_dataset(self.info, self.begun, self.schema, formats, shards, found)
        commit: dict[str, Any] = {
            "manifest": manifest.to_json(),
            "staged": sorted(file for shard in shards if shard.file in self.staged for file in shard.files),
            "quarantine": bad if self.options.on_error == "quarantine" else [],
            "replaced": sorted({*self.replaced, *self.journal.left}),
            "stale": sorted(self.metadata),
        }
        self._check_commit(manifest)
        self.journal.note("commit", commit)
        manifest = self.place.publish(commit)
        self.place.sweep(manifest, commit["replaced"])
        return self._built(manifest, len(written), leaking)

    def _inferred_floats(self) -> dict[str, str]:
        """Fields of floats that nobody has declared: of Python floats, or of NumPy's float64."""
        if self.options.schema is not None:
            return {}
        leaves = [leaf for leaf in self.schema.leaves() if leaf.dtype in ("float32", "float64")]
        kinds = {leaf.name: "python" if leaf.name in self.floats else "numpy" for leaf in leaves}
        return {leaf.name: kinds[leaf.name] for leaf in leaves if leaf.dtype == "float64" or leaf.name in self.floats}

    def _check_commit(self, manifest: Manifest) -> None:
        """Foreign files that appeared while the build ran are safe too."""
        own = self.metadata | with_sidecars([*self.replaced, *self.journal.left])
        files = metadata_files(manifest)
        # A build of the same dataset that runs at the same time writes the same files; of the manifest, one wins.
        present = set(self.place.names())
        own |= {name for name in present & set(files) if name not in own and self.place.read(name) == files[name]}
        if MANIFEST in present and b'"penstock_manifest"' in (self.place.read(MANIFEST) or b""):
            own.add(MANIFEST)
        wanted = {MANIFEST, *files}
        if manifest.found["bad"] and self.options.on_error == "quarantine":
            wanted.add(QUARANTINE)
        shards: set[str] = set()
        if self.place.directory == self.place.destination:  # a store has had its shards checked before they were sent
            shards = with_sidecars(shard.file for shard in manifest.shards() if shard.file in self.staged)
        check_foreign(self.place, sorted(wanted | shards), own, present)

    def _up_to_date(self, manifest: Manifest) -> Built:
        """The dataset that stands there is what was asked for."""
        files = {name: [shard.file for shard in shards] for name, shards in manifest.splits.items()}
        return self._built(manifest, 0, self.place.leaks(files, set())[1] if manifest.found.get("leaks", 0) else [])

    def _built(self, manifest: Manifest, written: int, leaking: list[Leak]) -> Built:
        self.place.finish()
        kept, seconds = sum(map(len, manifest.splits.values())) - written, time.monotonic() - self.started
        found = [entry for file in sorted(self.outcomes) for entry in self.outcomes[file].bad][:MOST_BAD]
        bad = tuple({name: entry[name] for name in ("split", "key", "place", "error")} for entry in found)
        return Built(self.place.opened(manifest), manifest, written, kept, tuple(leaking), self.drift, seconds, bad)
