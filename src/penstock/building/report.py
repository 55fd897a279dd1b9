"""What a build tells: how far it is, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..dataset.manifest import Manifest
from ..dataset.open import Opened
from ..dataset.tfds import tfds_notes
from ..errors import redact
from ..loading.dataset import Dataset
from ..schema.schema import Schema
from .commit import Leak
from .engines.local import Local
from .listing import infer_schema, list_splits
from .options import Options


class Built(Dataset):
    """A dataset as `load` opens it, and what its build did.

    written, kept  shards
    bad_examples   the first of the examples that this build left out: split, key, place and error of each
    leaking        some of the contents that stand in more than one split
    notes          fields of floats that TensorFlow's parser can't read, or that were rounded to 32 bits
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
        bad_examples: tuple[dict[str, str], ...] = (),
    ) -> None:
        super().__init__(opened)
        self.manifest = manifest
        self.written = written
        self.kept = kept
        self.leaking = leaking
        self.drift = drift
        self.seconds = seconds
        self.bad_examples = bad_examples

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
        return tfds_notes(self.manifest)

    @property
    def notes(self) -> dict[str, str]:
        """Fields that other readers do not see as they were given, each with the reason and what to do."""
        return float_notes(self.manifest)

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


def float_notes(manifest: Manifest) -> dict[str, str]:
    """What became of floats that nobody has declared, by field."""
    notes = {}
    dtypes = {leaf.name: leaf.dtype for leaf in manifest.schema.leaves()}
    for name, kind in manifest.found.get("floats", {}).items():
        if dtypes.get(name) == "float32":
            notes[name] = (
                f"Python floats are stored as float32. To keep 64 bits: {_declared(manifest, name, 'float64')}"
            )
        elif name in dtypes:
            fix = _declared(manifest, name, "float32") if kind == "python" else 'value.astype("float32")'
            problem = "float64 is stored as bytes, which tf.io.parse_example can't read as numbers"
            notes[name] = f"{problem}. To store float32: {fix}"
    return notes


def _declared(manifest: Manifest, name: str, dtype: str) -> str:
    """The option that declares a field. A declared schema has all fields: where there are others, they are repeated."""
    node = next(leaf for leaf in manifest.schema.leaves() if leaf.name == name)
    text = str(replace(node, dtype=dtype, encoding="auto"))
    others = "" if list(manifest.schema) == [name] else "**built.schema, "
    return f'schema={{{others}"{name}": "{text}"}}'


@dataclass(frozen=True)
class Preview:
    """The plan of a build: the schema as far as a sample shows it, and for each split its examples and shards.

    A split whose number of examples is not known before it is built has None for both.
    """

    schema: Schema
    splits: dict[str, tuple[int, int] | None]


def preview(source: Any, **options: Any) -> Preview:
    """List the source, load a sample, and plan. The options are those of `build` that decide what is written."""
    asked = Options.checked(source, **options)
    splits = list_splits(source, asked.order, asked.seed)
    workers = Local()
    for split in splits:
        split.look(asked.on_error, workers)
    schema = asked.schema or infer_schema(splits, asked.on_error)
    counts: dict[str, tuple[int, int] | None] = {}
    for split in splits:
        unknown = split.stream is not None or asked.dedupe or split.multiplies(workers)
        shards = None if unknown else split.count_shards(schema, asked.shards, asked.formats[0])
        counts[split.name] = None if shards is None else (len(split.rows), shards)
    return Preview(schema, counts)
