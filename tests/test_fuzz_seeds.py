"""Every seed of the fuzz targets through the Python API: a result or a PenstockError, never anything else."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.record_oracle import framed

import penstock as ps
from penstock.records.index import export_dali, import_dali, read_index, sidecar_path
from penstock.records.tfrecord import salvage_records

SEEDS = Path(__file__).resolve().parent.parent / "fuzz" / "seeds"

# What fuzz/src/plans.rs has, and more rows than any input holds.
SCHEMAS: list[dict[str, Any]] = [
    {"a": "int64", "b": "float32[3]", "c": "int64[2]"},
    {"a": "int64[?]", "b": "float32[?]", "c": "bytes[?]"},
    {"a": "bytes", "b": "str[2]", "c": "bytes[?]?"},
    {"a": "int64?", "b": "float32[2]?", "c": "bytes?", "d": "int64[?]?"},
    {
        "a": ps.Field(dtype="int64", default=7),
        "c": ps.Field(dtype="bytes", default=b"none"),
        "d": ps.Field(dtype="int8", shape=(3,), default=[1, 2, 3]),
    },
    {
        "a": "bool[?]",
        "b": "int8[?]",
        "c": "uint8[?]",
        "d": "int16[?]",
        "e": "uint16[?]",
        "f": "int32[?]",
        "h": "uint64",
    },
    {"a": "float16[2]", "b": "float64", "c": "float16[?]", "d": "float64[?]?"},
    {name: ps.Field(dtype="float64", shape=(None,), encoding="bytes", optional=name != "a") for name in "abcd"},
    {name: ps.Field(dtype="int16", shape=(4,), encoding="zlib", optional=name != "a") for name in "abc"},
    {"c": "int64[?]"},
    {"a": "list[int64[2]]", "b": "list[list[float32]]", "c": "list[str]"},
    {"a": f"int64[{1 << 26}]"},
    {"c": ps.Field(dtype="uint64", shape=(1 << 26,), encoding="zlib")},
]


RECORDS = [b"four", b"", b"eight by"]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A file whose index is known."""
    path = tmp_path / "a"
    path.write_bytes(framed(RECORDS))
    return path


def seeds(target: str) -> Any:
    """A test for each seed of a target."""
    return pytest.mark.parametrize("seed", sorted((SEEDS / target).iterdir()), ids=lambda path: path.name)


def attempt(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What the call gives, or None if it refuses; any other exception is a failure."""
    try:
        return call(*arguments, **options)
    except ps.PenstockError:
        return None


def records_of(content: bytes) -> list[bytes]:
    """Records with their lengths before them, as the targets take them."""
    records = []
    while len(content) >= 2:
        (length,) = struct.unpack_from("<H", content)
        records.append(content[2 : 2 + length])
        content = content[2 + length :]
    return records


def decodes_alike(codec: ps.Codec | ps.SequenceCodec, records: list[bytes]) -> bool:
    """Whether records that decode together decode one by one too, and come back when they are encoded."""
    batch = attempt(codec.decode, records)
    singles = [attempt(codec.decode_example, record) for record in records]
    if batch is None or not records:
        return True
    return None not in singles and repr(codec.decode(codec.encode(batch))) == repr(batch)


def test_seeds_are_there() -> None:
    targets = sorted(path.stem for path in (SEEDS.parent / "fuzz_targets").glob("*.rs"))
    assert targets == sorted(path.name for path in SEEDS.iterdir())
    assert sum(path.stat().st_size for path in SEEDS.rglob("*") if path.is_file()) < 200_000


@seeds("frame_scan")
def test_files(seed: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "a", tmp_path / "b"
    path.write_bytes(seed.read_bytes())
    reader = attempt(ps.TFRecordReader, path)
    records = attempt(list, reader) if reader is not None else None
    report = salvage_records(path, out)
    saved = list(ps.TFRecordReader(out))
    assert len(saved) == report.records
    assert report.whole == (records is not None)
    if records is not None:
        assert saved == records
        assert list(reader[::-1]) == records[::-1]


@seeds("tar")
def test_tars(seed: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "a.tar", tmp_path / "b"
    path.write_bytes(seed.read_bytes())
    dataset = attempt(lambda: ps.load(path, schema={"__key__": "str"}))
    report = salvage_records(path, out)
    assert report.whole == (dataset is not None)
    if dataset is not None:
        assert len(dataset["train"]) == report.records == len(ps.TFRecordReader(out))


@seeds("array_record")
def test_array_record_files(seed: Path, tmp_path: Path) -> None:
    content = seed.read_bytes()
    path, out = tmp_path / "a", tmp_path / "b"
    with ps.ArrayRecordWriter(path, ps.ArrayRecord(group_size=2)) as writer:
        writer.write_records([content, b"", content])
    assert list(ps.ArrayRecordReader(path)) == [content, b"", content]
    whole = path.read_bytes()
    # Put over the first chunk, and into the table.
    for at in (64, len(whole) - (1 << 16) + 64):
        path.write_bytes(whole[:at] + content + whole[at + len(content) :])
        attempt(list, attempt(ps.ArrayRecordReader, path) or [])
        report = salvage_records(path, out)
        assert report.records == len(ps.TFRecordReader(out))
        assert report.whole == (path.read_bytes() == whole)


@seeds("example_decode")
def test_examples(seed: Path) -> None:
    records = records_of(seed.read_bytes()[1:])
    for schema in SCHEMAS:
        assert decodes_alike(ps.Codec(schema), records)


@seeds("sequence_decode")
def test_sequences(seed: Path) -> None:
    records = records_of(seed.read_bytes()[2:])
    for schema in SCHEMAS[:9]:
        assert decodes_alike(ps.SequenceCodec({}, schema), records)
        assert decodes_alike(ps.SequenceCodec(schema, {"z": "int64?"}), records)


@seeds("index_file")
def test_indexes(seed: Path, shard: Path) -> None:
    sidecar_path(shard).write_bytes(seed.read_bytes())
    attempt(read_index, shard)
    assert list(ps.TFRecordReader(shard)) == RECORDS
    attempt(ps.TFRecordReader, shard, index=sidecar_path(shard))


@seeds("index_file")
def test_dali_indexes(seed: Path, shard: Path, tmp_path: Path) -> None:
    text = tmp_path / "a.idx"
    text.write_bytes(seed.read_bytes())
    if attempt(import_dali, shard, text) is not None:
        export_dali(shard, text)
        assert text.read_text() == "0 20\n20 16\n36 24\n"


@seeds("image")
def test_images(seed: Path) -> None:
    content = seed.read_bytes()
    for data in (content, content[1:]):
        for options in ({}, {"channels": None}, {"size": (7, 5), "crop": "random"}):
            pixels = attempt(ps.Image(**options).decode, data)
            assert pixels is None or pixels.size


@seeds("csv")
def test_csv_files(seed: Path, tmp_path: Path) -> None:
    _, which, *text = seed.read_bytes()
    for number, content in enumerate(bytes(text).split(b"\xff", 1)):
        (tmp_path / f"{number}.csv").write_bytes(content)
    table: Any = attempt(ps.csv, tmp_path, delimiter=",\t §"[which >> 6])
    if table is not None:
        assert [list(table[row]) for row in range(len(table))] == [list(table.columns)] * len(table)


@seeds("deflate")
def test_numbers_as_zlib(seed: Path) -> None:
    data = seed.read_bytes()
    numbers = np.frombuffer(data[1:] * 60, np.uint8)[: len(data[1:]) // 4 * 4 * 60].view("<u4")
    field = ps.Field(dtype="uint32", shape=(len(numbers),), encoding="zlib")
    codec = ps.Codec({"numbers": field})
    np.testing.assert_equal(codec.decode(codec.encode({"numbers": numbers[None]}))["numbers"][0], numbers)


@seeds("round_trip")
def test_bytes(seed: Path, tmp_path: Path) -> None:
    content = seed.read_bytes()
    with ps.TFRecordWriter(tmp_path / "a") as writer:
        writer.write_records([content, b"", content[::-1]])
    assert list(ps.TFRecordReader(tmp_path / "a")) == [content, b"", content[::-1]]
    for schema in SCHEMAS:
        attempt(ps.Codec(schema).decode, [content])
