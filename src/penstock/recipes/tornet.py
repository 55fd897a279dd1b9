"""TorNet: radar data of tornadoes, from its catalog and NetCDF files to the dataset that TFDS knows as tornet 1.1.0.

    from penstock.recipes import tornet

    tornet.build("/data/tornet")                       # into $TFDS_DATA_DIR/tornet/1.1.0
    tornet.loader([2013, 2014], "torch", batch_size=128)

What is stored, under which names, in which splits, is what the builder of mit-ll/tornet stores.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..building.api import Built, Formats, checked_formats
from ..building.api import build as build_dataset
from ..building.plan import FormatName, Order
from ..dataset.manifest import Info
from ..errors import CorruptionError, NotFoundError, SchemaError, name_known
from ..records.array_record import ArrayRecord
from ..records.formats import Format
from ..schema.columns import Array, Value
from ..schema.field import Field
from ..schema.schema import Schema
from ..sources.files import read_text, stamp_of, within
from ..sources.netcdf import open_netcdf, plain, read_seconds, read_variable, seconds_of
from ..sources.protocol import Source, read_column, view
from ..sources.tfds_builder import GeneratedSplits
from ..storage.files import checked_path, join_path, list_folder
from ..storage.store import is_url
from .tornet_loader import coordinates as coordinates
from .tornet_loader import loader as loader
from .tornet_sample import MASK, RANGES, SHAPE
from .tornet_sample import write_sample as write_sample

VERSION = "1.1.0"
PATH = f"tfds:tornet:{VERSION}"  # unless told: where TFDS looks for it
CATALOG = "catalog.csv"
KINDS = ("train", "test")
YEARS_BY = ("end_time", "start_time")
CATEGORIES = {"TOR": 0, "NUL": 1, "WRN": 2}
VARIABLES = tuple(RANGES)
RECORD_BYTES = 1 << 20  # about what a record takes

SCHEMA = Schema(
    {
        **{name: Field(dtype="float32", shape=SHAPE, encoding="zlib") for name in (*VARIABLES, MASK)},
        "label": Field(dtype="uint8", shape=SHAPE[:1]),
        **{name: Field(dtype="int64", shape=(1,)) for name in ("category", "event_id", "ef_number")},
        **{name: Field(dtype="float32", shape=(1,)) for name in ("az_lower", "az_upper", "rng_lower", "rng_upper")},
        "time": Field(dtype="int64", shape=SHAPE[:1]),
        **{name: Field(dtype="int64", shape=(1,)) for name in ("tornado_start_time", "tornado_end_time")},
    }
)
INFO = Info(
    version=VERSION,
    description="TorNet: full-resolution polarimetric weather radar data of tornadoes and of storms without them.",
    citation="""@misc{veillette2024tornet,
  title={A Benchmark Dataset for Tornado Detection and Prediction using Full-Resolution Polarimetric Weather Radar
    Data},
  author={Veillette, Mark S. and Kurdzo, James M. and Stepanian, Phillip M. and Cho, John Y. N. and Samsi, Siddharth
    and McDonald, Joseph},
  year={2024}, eprint={2401.16437}, archivePrefix={arXiv}
}""",
)


# One file


def read_file(path: str) -> dict[str, Array]:
    """The example of a file. The last frame's label is whether there was a tornado, whatever the file says."""
    with open_netcdf(path) as file:
        said = {name: plain(value) for name, value in file.attrs.items()}
        if said["category"] not in CATEGORIES:
            raise ValueError(f"the category {said['category']!r}, which is none of {', '.join(CATEGORIES)}")
        ef_number = int(said["ef_number"])
        example = {name: read_variable(file[name]).astype(np.float32, copy=False) for name in (*VARIABLES, MASK)}
        label = read_variable(file["frame_labels"]).astype(np.uint8)
        label[-1] = ef_number >= 0
        azimuth, distance = (read_variable(file[name]).astype(np.float32) for name in _LIMITS)
        numbers = {
            "category": CATEGORIES[said["category"]],
            "event_id": int(said["event_id"]),
            "ef_number": ef_number,
            **{name: seconds_of(said[name]) if ef_number >= 0 and name in said else 0 for name in _TORNADO},
        }
        return {
            **example,
            "label": label,
            "az_lower": azimuth[:1],
            "az_upper": azimuth[1:],
            "rng_lower": distance[:1],
            "rng_upper": distance[1:],
            "time": read_seconds(file["time"]),
            **{name: np.array([number], np.int64) for name, number in numbers.items()},
        }


_LIMITS = ("azimuth_limits", "range_limits")
_TORNADO = ("tornado_start_time", "tornado_end_time")


class Recording:
    """An example of TorNet that is a file still."""

    __slots__ = ("key", "path", "values")

    def __init__(self, key: str, path: str) -> None:
        self.key = key
        self.path = path
        self.values: dict[str, Array] = {}

    def load(self) -> None:
        """Read the file."""
        self.values = read_file(self.path)

    def to_dict(self) -> dict[str, Array]:
        """What is stored."""
        return self.values


# The catalog


@dataclass(frozen=True)
class Recordings(Source):
    """The files of a catalog: a source. Its columns are those of the catalog."""

    root: str
    rows: list[dict[str, str]]
    known: Mapping[str, str] = field(default_factory=dict, repr=False)  # stamps of files in a store

    schema = SCHEMA

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Recording:
        return Recording(self.key(index), self.place(index))

    def __repr__(self) -> str:
        return f"Recordings({len(self)} files of {self.root})"

    @property
    def options(self) -> dict[str, object]:
        """What decides the examples besides their keys."""
        return {"tornet": VERSION}

    def key(self, index: int) -> str:
        """The name that the catalog has for the file."""
        return self.rows[index]["filename"]

    def place(self, index: int) -> str:
        """Where the file is."""
        return within(self.root, self.key(index), join_path(self.root, CATALOG))

    def has(self, index: int) -> bool:
        """Whether the file is there."""
        path = self.place(index)
        return path in self.known if is_url(path) else os.path.isfile(path)

    def stamp(self, index: int) -> str:
        """Changes when the file does."""
        return stamp_of(self.place(index), self.known)

    def column(self, name: str) -> Sequence[Value]:
        """A column of the catalog; where it has none of that name, the attribute of each file."""
        if self.rows and name in self.rows[0]:
            return [row[name] for row in self.rows]
        return [self._attribute(index, name) for index in range(len(self))]

    def _attribute(self, index: int, name: str) -> Any:
        with open_netcdf(self.place(index)) as file:
            said = dict(file.attrs)
        if name not in said:
            known = name_known(name, [*self.rows[index], *said], "columns")
            raise SchemaError(f"no column {name!r}", self.place(index), known)
        return plain(said[name])


class TorNetSplits(GeneratedSplits):
    """The splits of TorNet.

    missing  of each split, how many of its files the catalog has and the folder has not
    """

    __slots__ = ("missing",)

    def __init__(self, sources: Mapping[str, Any], missing: Mapping[str, int]) -> None:
        super().__init__(sources, SCHEMA, INFO)
        self.missing = dict(missing)

    @property
    def said(self) -> str:
        """What is missing, in words; nothing where nothing is."""
        parts = [
            f"{split} ({count:,} of {count + len(self[split]):,} files)" if split in self else f"{split} (all files)"
            for split, count in self.missing.items()
        ]
        return f"missing, and left out: {', '.join(parts)}" if parts else ""


def recordings(root: str | os.PathLike[str] | None = None) -> Recordings:
    """All files of TorNet that are there, as one source: to be split another way than TorNet does.

    ps.split(tornet.recordings(root), train=0.8, test=0.2, group="event_id")
    """
    whole = _read_catalog(root)
    there = Recordings(whole.root, [row for index, row in enumerate(whole.rows) if whole.has(index)], whole.known)
    if not there.rows:
        raise NotFoundError(f"expected files of the catalog, got none of {len(whole):,} - at {whole.root}")
    return there


def source(
    root: str | os.PathLike[str] | None = None, *, years: Iterable[int] | None = None, year_by: str = "end_time"
) -> TorNetSplits:
    """The splits of TorNet, train-2013 to test-2022, as far as their files are there.

    root     the folder with catalog.csv, train/ and test/; $TORNET_ROOT unless told
    years    only these
    year_by  "end_time", as the published dataset has it, or "start_time", as its loaders of single files have it: a
             file that crosses New Year is in another split then
    """
    if year_by not in YEARS_BY:
        raise SchemaError(f"expected {' or '.join(YEARS_BY)}, got {year_by!r}", "year_by")
    whole = _read_catalog(root)
    wanted = None if years is None else {int(year) for year in years}
    found: dict[str, list[int]] = {}
    missing: dict[str, int] = {}
    for index, row in sorted(enumerate(whole.rows), key=lambda item: KINDS.index(item[1]["type"])):
        year = int(row[year_by][:4])
        if wanted is not None and year not in wanted:
            continue
        name = f"{row['type']}-{year}"
        if whole.has(index):
            found.setdefault(name, []).append(index)
        else:
            missing[name] = missing.get(name, 0) + 1
    if not found:
        asked = "" if wanted is None else f" of {', '.join(map(str, sorted(wanted)))}"
        raise NotFoundError(f"expected files{asked}, got none that the catalog names - at {whole.root}")
    splits = {name: view(whole, np.array(found[name])) for name in sorted(found, key=_by_kind)}
    return TorNetSplits(splits, {name: missing[name] for name in sorted(missing, key=_by_kind)})


def _by_kind(split: str) -> tuple[int, str]:
    return KINDS.index(split.split("-")[0]), split


def _read_catalog(root: str | os.PathLike[str] | None) -> Recordings:
    folder = checked_path(root or os.environ.get("TORNET_ROOT") or "", "root" if root else "TORNET_ROOT")
    if not folder:
        raise NotFoundError("expected the folder of TorNet, got none. Give it, or set TORNET_ROOT")
    path = join_path(folder, CATALOG)
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
    except FileNotFoundError:
        raise NotFoundError(f"expected {CATALOG} beside train/ and test/, got nothing at {path}") from None
    except csv.Error as error:
        raise CorruptionError(f"expected a catalog as CSV, got this: {error}", path) from None
    for number, row in enumerate(rows, 2):
        _check_row(row, f"{path}, line {number}")
    return Recordings(folder, rows, list_folder(folder).stamps)


def _check_row(row: Mapping[str, str | None], where: str) -> None:
    for name in ("type", "filename", *YEARS_BY):
        if not row.get(name):
            known = name_known(name, [column for column in row if column], "columns")
            raise SchemaError(f"expected a value in the column {name!r}, got none", where, known)
    if row["type"] not in KINDS:
        raise SchemaError(f"expected type {' or '.join(KINDS)}, got {row['type']!r}", where)
    for name in YEARS_BY:
        if not str(row[name])[:4].isdecimal():
            raise SchemaError(f"expected a time such as 2013-05-20 20:16:00, got {row[name]!r}", where)


# The dataset


def build(
    root: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] = PATH,
    *,
    years: Iterable[int] | None = None,
    year_by: str = "end_time",
    format: Formats = "tfrecord",
    order: Order = "tfds",
    **options: Any,
) -> Built:
    """Build TorNet from its files, into the directory where TFDS looks for it unless told otherwise.

    build(root, format=["tfrecord", "array_record"])      # for tfds.load and for tfds.data_source

    root, years, year_by as for `source`; format and all other options as for `penstock.build`. The order is that of the
    published dataset: ds["train-2015"][5] is the same example in both. Files that the catalog names and that are not
    there are left out, with a warning that counts them.
    """
    splits = source(root, years=years, year_by=year_by)
    if splits.said:
        warnings.warn(splits.said, stacklevel=2)
    return build_dataset(splits, os.fspath(path), format=sized(format), order=order, **options)


def sized(format: Formats) -> list[Format]:
    """Formats with a number of examples for each shard: that spares a look at how large records are.

    A format that is a name compresses nothing: what is large in the records is compressed already.
    """
    named = [format] if isinstance(format, (str, Format)) else format
    plain: list[FormatName | Format] = [
        ArrayRecord(compression=None) if each == ArrayRecord.name else each for each in named
    ]
    return [
        each if each.shard_examples else replace(each, shard_examples=max(1, each.shard_bytes // RECORD_BYTES))
        for each in checked_formats(plain)
    ]


def shared_events(splits: Mapping[str, Any], column: str = "event_id") -> dict[str, tuple[str, ...]]:
    """Events that stand in more than one split, each with its splits: what a model would know beforehand."""
    seen: dict[str, list[str]] = {}
    for name, part in splits.items():
        for event in dict.fromkeys(map(str, read_column(part, column))):
            seen.setdefault(event, []).append(name)
    return {event: tuple(names) for event, names in seen.items() if len(names) > 1}
