"""What a build is asked for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import SchemaError, did_you_mean
from ..records.formats import FORMATS, Format
from ..schema.schema import Schema
from ..sources.splits import Deduped

ORDERS = ("hash", "source", "tfds")
POLICIES = ("raise", "skip", "quarantine")


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """Keep bad examples apart, with their tracebacks: a file quarantine.jsonl in the dataset's directory.

    max_errors  so many, and the build ends with an error; any number unless told
    retry       of a dataset that is there, try the bad examples again: only the shards that lack some are written anew
    """

    max_errors: int | None = None
    retry: bool = False

    def __post_init__(self) -> None:
        if self.max_errors is not None and (type(self.max_errors) is not int or self.max_errors < 0):
            raise SchemaError(f"expected max_errors to be 0 or more, got {self.max_errors!r}")


@dataclass(frozen=True)
class Options:
    """The options that decide what a dataset holds, and what to do with bad examples."""

    formats: tuple[Format, ...]
    shards: int | None
    order: str
    seed: int
    schema: Schema | None
    full: bool
    on_error: str
    max_errors: int | None
    retry: bool
    dedupe: str | None
    short_floats: bool = False

    @classmethod
    def checked(
        cls,
        source: Any,
        *,
        format: str | Format | Sequence[str | Format],
        shards: int | None,
        schema: Schema | Mapping[str, Any] | str | None,
        order: str,
        seed: int,
        on_error: str | Quarantine,
    ) -> Options:
        """From what a user says; a source may say something too."""
        if shards is not None and (type(shards) is not int or shards < 1):
            raise SchemaError(f"expected shards to be 1 or more, got {shards!r}")
        if type(seed) is not int or not 0 <= seed < 2**64:
            raise SchemaError(f"expected a seed from 0 to 2**64 - 1, got {seed!r}")
        if isinstance(schema, str) and schema != "full":
            raise SchemaError(f'expected a schema or "full", got {schema!r}')
        declared = None if schema is None or isinstance(schema, str) else Schema(schema)
        policy = "quarantine" if isinstance(on_error, Quarantine) else _one_of("on_error", on_error, POLICIES)
        apart = on_error if isinstance(on_error, Quarantine) else Quarantine()
        order = _one_of("order", order, ORDERS)
        full, budget = schema == "full", apart.max_errors
        dedupe = ("across" if source.across else "within") if isinstance(source, Deduped) else None
        return cls(checked_formats(format), shards, order, seed, declared, full, policy, budget, apart.retry, dedupe)

    @property
    def counts_shards(self) -> bool:
        """Whether the number of shards is known without the size of the records."""
        return self.shards is not None or self.formats[0].shard_examples is not None

    def to_json(self) -> dict[str, Any]:
        """Those that decide what is written."""
        plain = {"shards": self.shards, "order": self.order, "seed": self.seed, "dedupe": self.dedupe}
        first, *others = ({"name": format.name, **asdict(format)} for format in self.formats)
        formats = {"format": first, "alternatives": {other.pop("name"): other for other in others}}
        return {**formats, **plain, "schema": self.schema.to_json() if self.schema else None}


def checked_formats(asked: str | Format | Sequence[str | Format]) -> tuple[Format, ...]:
    """The formats that are asked for, one or several. Their shards are cut alike: each holds the same records."""
    several = [asked] if isinstance(asked, (str, Format)) or not isinstance(asked, Sequence) else list(asked)
    formats = tuple(
        each if isinstance(each, Format) else FORMATS[_one_of("format", each, tuple(FORMATS))]() for each in several
    )
    names = [format.name for format in formats]
    if not names or len(set(names)) < len(names):
        raise SchemaError(f"expected each format once, got {' and '.join(names) or 'none'}", "format")
    if len({(format.shard_bytes, format.shard_examples) for format in formats}) > 1:
        hint = "Give both the same shard_bytes and shard_examples"
        raise SchemaError("expected shards of one size in all formats, got others", "format", hint)
    return formats


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        expected = " or ".join(map(repr, known))
        raise SchemaError(f"expected {name} to be {expected}, got {value!r}", "", did_you_mean(value, known))
    return str(value)
