"""Where a dataset is built: what differs between a directory of this machine and a folder of a store."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...dataset.manifest import WORK, Manifest
from ...dataset.open import Opened, open_manifest
from ..commit import Leak, find_leaks, publish_dataset, remove_work, sweep_shards
from ..encode import Outcome, Target
from ..engines.engine import Workers
from ..journal import Journal
from ..resume import find_standing, whole_files
from ..write import Task

Results = Generator[tuple[Task, Outcome], None, None]


class Folder:
    """A directory of this machine. Shards wait in its work folder until all are there.

    directory  where this machine writes; absolute, for code of the user may change the working directory
    where      path shown in messages
    published  False for a folder that no reader sees: its dataset may be replaced
    """

    def __init__(self, directory: Path, *, published: bool = True) -> None:
        self.directory = directory.absolute()
        self.where = str(directory)
        self.published = published

    @property
    def path(self) -> Path:
        """The path that names the dataset."""
        return self.directory

    @property
    def destination(self) -> Path | str:
        """What workers must reach."""
        return self.directory

    def journal(self) -> Journal:
        """What a build has done here so far."""
        return Journal(self.directory / WORK)

    def target(self, journal: Journal) -> Target | None:
        """Where workers of other machines send their shards, if it is a store."""
        return None

    def standing(self, *, broken: bool = False) -> Manifest | None:
        """The dataset that stands here. One with a broken manifest is an error, or counts as none."""
        return find_standing(self.directory, broken=broken)

    def names(self) -> Iterable[str]:
        """The files that are here."""
        return (path.name for path in self.directory.iterdir())

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it is missing or no file."""
        path = self.directory / name
        return path.read_bytes() if path.is_file() else None

    def whole(self, entries: Mapping[str, dict[str, Any]], workers: Workers | None = None) -> tuple[set[str], set[str]]:
        """Which files are what their entries say: those that wait, and those that are in their place."""
        staged = whole_files(self.directory / WORK, entries.values(), workers)
        return staged, whole_files(self.directory, [entries[file] for file in entries.keys() - staged], workers)

    def brought(self, results: Results) -> Results:
        """Outcomes whose spools were elsewhere, and are here now."""
        yield from results

    def make_way(self, files: Iterable[str]) -> None:
        """Before workers write shards to their names at once: nothing else may have these names."""

    def received(self, results: Results) -> Results:
        """Outcomes whose shards are safe here."""
        yield from results

    def leaks(self, shards: Mapping[str, list[str]], staged: set[str]) -> tuple[int, list[Leak]]:
        """Contents that stand in more than one split; `shards` has the files of each."""
        paths = {
            split: [self.directory / WORK / file if file in staged else self.directory / file for file in files]
            for split, files in shards.items()
        }
        return find_leaks(paths)

    def publish(self, commit: dict[str, Any]) -> Manifest:
        """From here on, there is a dataset."""
        return publish_dataset(self.directory, commit)

    def sweep(self, manifest: Manifest, replaced: Iterable[str]) -> None:
        """Remove what is no part of the dataset."""
        sweep_shards(self.directory, manifest, replaced)

    def finish(self) -> None:
        """Remove what the build kept."""
        remove_work(self.directory)

    def opened(self, manifest: Manifest, format: str | None = None) -> Opened:
        """The dataset, to read from."""
        return replace(open_manifest(self.directory, manifest, format=format), path=Path(self.where))
