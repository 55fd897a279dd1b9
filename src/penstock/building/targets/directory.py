"""The directory of a dataset, as the target of a build. Foreign files in it are never replaced or removed.

Shards wait in the work folder until all are finished. Then they are moved into place, and the manifest is written last.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...dataset.manifest import (
    ATTEMPT,
    KEYS_SUFFIX,
    MANIFEST,
    WORK,
    Manifest,
    manifest_bytes,
    read_manifest,
    shard_files,
    shard_pattern,
)
from ...dataset.open import Opened, open_manifest
from ...dataset.tfds import INFO, metadata_files
from ...dataset.tfds_features import FEATURES, LABELS
from ...errors import BuildError, CorruptionError, NotFoundError
from ...storage.local import sync_folder
from ...storage.open import open_store
from ..commit import QUARANTINE, committed_manifest, is_quarantine, quarantine_bytes, with_sidecars
from ..encode import Job, Upload
from ..engines.engine import Advance, Workers
from ..entries import Commit, ShardResult
from ..journal import JOURNAL, LOCK, MARKER, REBUILD, Journal, mark_work_folder
from ..plan import Task
from ..write import Results, run_attempts, undamaged_files, write_shard, write_shards


class Directory:
    """A directory on a local disk. Absolute, for the user's code may change the working directory.

    directory    Local directory that holds the work folder.
    destination  Directory or URL of the dataset, which workers must reach.
    where        Path shown in messages.
    published    False for a folder that no reader sees: its dataset may be replaced.
    """

    def __init__(self, directory: Path, *, published: bool = True) -> None:
        self.directory = directory.absolute()
        self.destination: Path | str = self.directory
        self.where = str(directory)
        self.published = published
        self._store, self._name = open_store(str(self.destination))

    @property
    def path(self) -> Path:
        """Path that names the dataset."""
        return self.directory

    @property
    def sends(self) -> bool:
        """True if shards get their final names before the commit, as in a store."""
        return False

    def open_journal(self) -> Journal:
        """Open the journal of the build, and hold its lock."""
        return Journal(self.directory / WORK)

    def upload(self, journal: Journal) -> Upload | None:
        """Return where workers on other machines send their shards; None if they share the directory."""
        return None

    # What exists

    def existing(self, *, damaged: bool = False) -> Manifest | None:
        """Return the manifest of the existing dataset. A damaged one is an error, or counts as none."""
        try:
            return read_manifest(self.destination)
        except NotFoundError:
            return None
        except CorruptionError:
            if damaged:
                return None
            raise

    def names(self) -> set[str]:
        """Return the names in the directory."""
        return self._store.names(self._name)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it is missing or no file."""
        try:
            return self._store.read(self._at(name))
        except NotFoundError:
            return None

    def _delete(self, name: str) -> None:
        self._store.delete(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._name}/{name}" if self._name else name

    def metadata_of(self, manifest: Manifest | None) -> set[str]:
        """Return the files besides shards that the build of an existing dataset has written."""
        if manifest is None:
            return set()
        files = {MANIFEST, *metadata_files(manifest)}
        if manifest.found.get("bad") and is_quarantine(self.read(QUARANTINE)):
            files.add(QUARANTINE)
        return files

    def shards_of(self, manifest: Manifest | None, name: str, *, overwrite: bool) -> set[str]:
        """Return the shards of an existing dataset. Without a manifest, and with `overwrite`, those with keys."""
        if manifest is not None:
            return {shard.file for shard in manifest.shards()}
        if not overwrite:
            return set()
        pattern, names = shard_pattern(name), self.names()
        found = {file for file in names if pattern.fullmatch(file) and file + KEYS_SUFFIX in names}
        return {file for file in found if _are_keys(self.read(file + KEYS_SUFFIX))}

    def has_damaged_manifest(self) -> bool:
        """Return True if penstock.json is missing or a damaged manifest, and not a document of another kind."""
        data = self.read(MANIFEST)
        if data is None or b'"penstock_manifest"' in data:
            return True
        try:
            json.loads(data)
        except ValueError:
            return any(name.endswith(KEYS_SUFFIX) for name in self.names())
        return False

    def metadata_of_damaged(self) -> set[str]:
        """Return the files besides shards of a dataset with a damaged manifest. Shards with keys prove a dataset."""
        names = {name for name in self.names() if name in (INFO, FEATURES) or name.endswith(LABELS)}
        return names | ({QUARANTINE} if is_quarantine(self.read(QUARANTINE)) else set())

    def check_foreign(self, wanted: Iterable[str], own: set[str]) -> None:
        """Refuse to build where a file has the name of one that the build writes, and is not Penstock's."""
        present = self.names()
        for name in wanted:
            if name in present and name not in own:
                hint = "Move it away, or build into another directory"
                raise BuildError(
                    f"expected a new file, got one that Penstock did not write: {name} - at {self.where}. {hint}"
                )

    def check_no_shards(self, name: str) -> None:
        """Refuse shards that no manifest and no journal refers to."""
        pattern = shard_pattern(name)
        foreign = next((file for file in sorted(self.names()) if pattern.fullmatch(file)), None)
        if foreign is not None:
            ours = self.shards_of(None, name, overwrite=True)
            hint = REBUILD if ours else "Move it away, or build into another directory"
            raise BuildError(f"expected a directory without shards, got {foreign} - at {self.where}. {hint}")

    def check_commit(self, manifest: Manifest, commit: Commit, own: set[str]) -> None:
        """Refuse to replace foreign files that appeared while the build ran."""
        files = metadata_files(manifest)
        # A build of the same dataset that runs at the same time writes the same files; of the manifest, one wins.
        present = self.names()
        own = own | {name for name in present & set(files) if name not in own and self.read(name) == files[name]}
        if MANIFEST in present and b'"penstock_manifest"' in (self.read(MANIFEST) or b""):
            own.add(MANIFEST)
        wanted = {MANIFEST, *files, *([QUARANTINE] if commit.quarantine else [])}
        shards = set() if self.sends else with_sidecars(commit.staged)  # a store had them checked before they were sent
        self.check_foreign(sorted(wanted | shards), own)

    def undamaged(self, shards: Mapping[str, ShardResult], workers: Workers) -> tuple[set[str], set[str]]:
        """Return the files that are as their entries: those that wait in the work folder, and those in place."""
        staged = undamaged_files(self.directory / WORK, list(shards.values()), workers)
        rest = [shards[file] for file in shards.keys() - staged]
        return staged, undamaged_files(self.directory, rest, workers)

    # What a build writes

    def spool(self, workers: Workers, job: Job, tasks: list[Task], advance: Advance) -> Results:
        """Run tasks that write spools. A result comes when its files are on the machine of the driver."""
        if workers.remote:
            return run_attempts(workers, job, tasks, advance)
        return workers.map(write_shard, job, tasks, advance)

    def write(self, workers: Workers, job: Job, tasks: list[Task], advance: Advance) -> Results:
        """Run tasks that write shards. A result comes when its shard is safe."""
        if workers.remote:
            return run_attempts(workers, job, tasks, advance)
        return write_shards(workers, job, tasks, advance)

    def shard_paths(self, splits: Mapping[str, list[str]], staged: set[str]) -> dict[str, list[Path]]:
        """Return local paths of the shards of each split, whose hashes are compared."""
        work = self.directory / WORK
        return {
            split: [work / file if file in staged else self.directory / file for file in files]
            for split, files in splits.items()
        }

    def fetch_keys(self, path: Path) -> Path:
        """Return a shard of `shard_paths` whose keys are beside it."""
        return path

    def publish(self, commit: Commit) -> Manifest:
        """Move finished shards into place, write the metadata of TFDS, and then the manifest.

        Where a shard replaces another, the manifest of the earlier dataset is removed first. After an interruption,
        publishing again ends with the same files.
        """
        directory = self.directory
        manifest = committed_manifest(commit, str(directory))
        names = [name for file in commit.staged for name in shard_files(file)]
        moves = [(directory / WORK / name, directory / name) for name in names if (directory / WORK / name).exists()]
        if any(target.exists() for _, target in moves):
            self._delete(MANIFEST)
            if INFO in commit.stale:
                self._delete(INFO)
            sync_folder(directory)
        for source, target in moves:
            os.replace(source, target)
        sync_folder(directory)
        self._publish_metadata(manifest, commit)
        self._store.publish(self._at(MANIFEST), manifest_bytes(manifest), sync=True)
        return manifest

    def _publish_metadata(self, manifest: Manifest, commit: Commit) -> None:
        """Write the quarantine and the metadata of TFDS, dataset_info.json last, and delete stale files."""
        files = metadata_files(manifest)
        if commit.quarantine:
            files = {QUARANTINE: quarantine_bytes(commit.quarantine), **files}
        for name in {*commit.stale, *([INFO] if INFO in files else [])} - ({*files, MANIFEST} - {INFO}):
            self._delete(name)
        for name, data in sorted(files.items(), key=lambda file: file[0] == INFO):
            self._store.publish(self._at(name), data, sync=name == INFO)

    def sweep(self, manifest: Manifest, replaced: Iterable[str]) -> None:
        """Remove the shards of earlier datasets that are not part of this one."""
        self.sweep_temporary(manifest.name)
        gone = with_sidecars(replaced) - with_sidecars([shard.file for shard in manifest.shards()])
        for name in gone & self.names() if gone else ():
            self._delete(name)

    def sweep_temporary(self, name: str) -> None:
        """Remove temporary files of killed builds, and of attempts that no driver waited for."""
        sweep_temporary(self.directory, name)

    def finish(self) -> None:
        """Remove the work folder."""
        remove_work(self.directory)

    def opened(self, manifest: Manifest) -> Opened:
        """Open the dataset."""
        return replace(open_manifest(self.directory, manifest), path=Path(self.where))


def _are_keys(data: bytes | None) -> bool:
    with suppress(zlib.error, ValueError):
        return data is not None and zlib.decompress(data)[:1] == b"["
    return False


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
