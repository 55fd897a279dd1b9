"""What a build tells: how far it is, and what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import redact
from ..load.dataset import Dataset
from ..load.opening import Opened
from ..manifest import Manifest
from ..tfds.features import features_of
from .commit import Leak


@dataclass(frozen=True)
class Progress:
    """How far a build is: examples of `total`, which a stream does not know, and the bytes of their records."""

    stage: str
    examples: int
    total: int | None
    bytes: int


class Meter:
    """Counts what tasks report, and tells it."""

    def __init__(self, told: Callable[[Progress], None] | None) -> None:
        self._told = told
        self._state = Progress("", 0, None, 0)

    def begin(self, stage: str, total: int | None) -> None:
        """Count from nothing again."""
        self._state = Progress(stage, 0, total, 0)

    def __call__(self, examples: int, size: int) -> None:
        state = self._state
        self._state = replace(state, examples=state.examples + examples, bytes=state.bytes + size)
        if self._told is not None:
            self._told(self._state)


class Built(Dataset):
    """A dataset as `load` opens it, and what its build did.

    written, kept  shards
    leaking        some of the contents that stand in more than one split
    drift          how the schema was widened, and for which example; empty if it was not
    """

    def __init__(
        self,
        opened: Opened,
        manifest: Manifest,
        written: int,
        kept: int,
        leaking: tuple[Leak, ...],
        drift: str,
        seconds: float,
    ) -> None:
        super().__init__(opened)
        self.manifest = manifest
        self.written = written
        self.kept = kept
        self.leaking = leaking
        self.drift = drift
        self.seconds = seconds

    @property
    def bad(self) -> int:
        """Examples that could not be stored."""
        return int(self.manifest.found.get("bad", 0))

    @property
    def ignored(self) -> int:
        """Examples that asked to be left out."""
        return int(self.manifest.found.get("ignored", 0))

    @property
    def duplicates(self) -> int:
        """Examples that were left out because another one has the same record; see `dedupe`."""
        return int(self.manifest.found.get("duplicates", 0))

    @property
    def tfds_notes(self) -> dict[str, str]:
        """Fields that TFDS can't read, or not as we do, each with the reason. Its description says so too."""
        return features_of(self.manifest.schema)[1]

    @property
    def leaks(self) -> int:
        """Contents that stand in more than one split."""
        return int(self.manifest.found.get("leaks", 0))

    def __repr__(self) -> str:
        splits = self.manifest.splits.items()
        told = [f"{name} {sum(s.records for s in shards):,} in {len(shards)}" for name, shards in splits]
        rest = [
            f"{count:,} {word}" for word in ("bad", "ignored", "duplicates", "leaks") if (count := getattr(self, word))
        ]
        return f"Built({redact(str(self.path))!r}: {', '.join(told + rest)})"
