"""ArrayRecord files against the real library: each reads what the other writes, and no damage goes unseen."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader as TheirReader
from array_record.python.array_record_module import ArrayRecordWriter as TheirWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.records.array_record import salvage_array_records
from penstock.records.shard import verify
from penstock.records.tfrecord import salvage_records

BLOCK = 1 << 16
FORMATS = {
    "uncompressed": ps.ArrayRecord(compression=None),
    "zstd": ps.ArrayRecord(),
    "zstd:-5": ps.ArrayRecord(level=-5),
    "brotli:4": ps.ArrayRecord(compression="brotli", level=4),
    "snappy": ps.ArrayRecord(compression="snappy"),
}
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, records: Iterable[bytes], format: ps.ArrayRecord | None = None, **options: Any) -> bytes:
    """Our file, as bytes."""
    with ps.ArrayRecordWriter(path, format, **options) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def write_theirs(path: Path, records: Iterable[bytes], options: str) -> bytes:
    """The library's file, as bytes."""
    writer = TheirWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path.read_bytes()


def read_theirs(path: Path) -> list[bytes]:
    """What the library reads, in every way that it reads."""
    reader = TheirReader(str(path))
    assert reader.ok()
    count = reader.num_records()
    in_order = [reader.read() for _ in range(count)]
    if count:
        assert list(reader.read(list(range(count)))) == in_order
        assert list(reader.read(0, count)) == in_order
    reader.close()
    return in_order


def some_records(count: int, largest: int = 900, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [
        rng.randbytes(rng.randrange(largest)) if n % 3 else b"abc" * rng.randrange(largest // 3) for n in range(count)
    ]


# Records of every size that matters: empty, a few bytes, those that end at a block's end or just behind.
sizes = st.one_of(
    st.integers(0, 300), st.sampled_from([0, 1, 127, 128, 65_300, 65_400, 65_448, 65_472, 65_536, 140_000])
)
record = st.builds(lambda size, seed, noisy: (random.Random(seed).randbytes(size) if noisy else bytes(size)),
                   sizes, st.integers(0, 99), st.booleans())  # fmt: skip


@quick
@given(
    records=st.lists(record, max_size=30),
    name=st.sampled_from(sorted(FORMATS)),
    group_size=st.sampled_from([1, 2, 7, 1000]),
    threads=st.integers(1, 3),
)
def test_the_library_reads_what_we_write(
    tmp_path: Path, records: list[bytes], name: str, group_size: int, threads: int
) -> None:
    format = ps.ArrayRecord(group_size=group_size, compression=FORMATS[name].compression, level=FORMATS[name].level)
    ours = write(tmp_path / "a", records, format, threads=threads)
    assert read_theirs(tmp_path / "a") == records
    assert list(ps.ArrayRecordReader(tmp_path / "a")) == records
    assert write(tmp_path / "b", records, format, threads=1) == ours
    report = verify(tmp_path / "a")
    assert (report.whole, report.records, report.record_bytes) == (True, len(records), sum(map(len, records)))


@quick
@given(
    records=st.lists(record, max_size=30),
    name=st.sampled_from(sorted(FORMATS)),
    group_size=st.sampled_from([1, 2, 7, 1000]),
    padded=st.booleans(),
)
def test_we_read_what_the_library_writes(
    tmp_path: Path, records: list[bytes], name: str, group_size: int, padded: bool
) -> None:
    options = f"group_size:{group_size},{name},pad_to_block_boundary:{str(padded).lower()}"
    theirs = write_theirs(tmp_path / "a", records, options)
    reader = ps.ArrayRecordReader(tmp_path / "a")
    assert list(reader) == records
    assert [reader[n] for n in range(len(records))][::-1] == list(reader[::-1])
    assert verify(tmp_path / "a").whole
    if name == "uncompressed" and not padded:
        format = ps.ArrayRecord(group_size=group_size, compression=None)
        assert write(tmp_path / "b", records, format) == theirs, "the same file, byte for byte"


@pytest.mark.parametrize("name", FORMATS)
def test_large_and_many_records(tmp_path: Path, name: str) -> None:
    format = FORMATS[name]
    large = [random.Random(7).randbytes(3_000_000), b"", bytes(5_000_000), b"x" * BLOCK]
    write(tmp_path / "large", large, format)
    assert read_theirs(tmp_path / "large") == large
    assert list(ps.ArrayRecordReader(tmp_path / "large")) == large
    # A chunk takes as many bytes as it has records: here it is padded.
    many = [b""] * 20_000
    grouped = ps.ArrayRecord(group_size=6000, compression=format.compression, level=format.level)
    write(tmp_path / "many", many, grouped)
    assert read_theirs(tmp_path / "many") == many
    assert list(ps.ArrayRecordReader(tmp_path / "many")) == many


def test_a_reader_is_a_sequence(tmp_path: Path) -> None:
    records = some_records(500)
    for group_size in (1, 16):
        write(tmp_path / "a", records, ps.ArrayRecord(group_size=group_size))
        reader = ps.ArrayRecordReader(tmp_path / "a")
        assert (len(reader), reader.group_size, len(reader.offsets)) == (500, group_size, -(-500 // group_size) + 1)
        assert reader[-1] == records[-1]
        assert list(reader[490:]) == records[490:]
        assert list(reader[[5, 400, 5, 401, 6]]) == [records[n] for n in (5, 400, 5, 401, 6)]
        assert list(pickle.loads(pickle.dumps(reader))) == records  # noqa: S301
        assert "500 records" in repr(reader)
        with pytest.raises(ps.RecordIndexError):
            reader[500]
    assert reader.writer_options.startswith("group_size:16,")


def test_examples_go_in_and_out(tmp_path: Path) -> None:
    codec = ps.Codec(ps.Schema({"n": "int64", "name": "str", "v": "float32[?]"}))
    columns = {
        "n": np.arange(5000),
        "name": [f"row {n}" for n in range(5000)],
        "v": [np.full(n % 9, n, np.float32) for n in range(5000)],
    }
    for group_size in (1, 300):
        path = tmp_path / f"{group_size}"
        with ps.ArrayRecordWriter(path, ps.ArrayRecord(group_size=group_size)) as writer:
            writer.write_columns(codec, columns)
        assert writer.summary is not None
        assert (writer.summary.records, writer.summary.bytes) == (5000, path.stat().st_size)
        assert writer.summary.crc32c == ps.crc32c(path.read_bytes())
        reader = ps.ArrayRecordReader(path)
        assert reader.example(codec, 77)["name"] == "row 77"
        assert reader.examples(codec, [9, 4000, 8])["n"].tolist() == [9, 4000, 8]
        for threads in (1, 3):
            numbers = [batch["n"] for batch in reader.batches(codec, 128, start=3, threads=threads)]
            assert np.concatenate(numbers).tolist() == list(range(3, 5000))


def test_threads_read_one_file_at_once(tmp_path: Path) -> None:
    records = some_records(2000)
    write(tmp_path / "a", records, ps.ArrayRecord(group_size=8))
    reader = ps.ArrayRecordReader(tmp_path / "a")
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        wrong.extend(n for n in rng.choices(range(2000), k=3000) if reader[n] != records[n])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_transposed_chunks_are_told(tmp_path: Path) -> None:
    write_theirs(tmp_path / "a", some_records(30), "group_size:4,transpose:true")
    with pytest.raises(ps.SchemaError, match=r"transposed.*Copy the records"):
        ps.ArrayRecordReader(tmp_path / "a")
    report = verify(tmp_path / "a")
    assert report.records == 0
    assert "transposed" in report.gaps[0].reason


def test_options_are_checked(tmp_path: Path) -> None:
    for wrong in (
        {"group_size": 0}, {"group_size": 1 << 31}, {"compression": "gzip"}, {"level": 23}, {"level": -6},
        {"compression": "brotli", "level": 12}, {"compression": "snappy", "level": 1},
        {"compression": None, "level": 1}, {"shard_bytes": 0}, {"shard_examples": 0},
    ):  # fmt: skip
        with pytest.raises(ps.ArgumentError, match="expected"):
            ps.ArrayRecord(**wrong)  # type: ignore[arg-type]
    ps.ArrayRecord(shard_examples=5, level=22)


def test_files_of_other_kinds_are_told(tmp_path: Path) -> None:
    with ps.TFRecordWriter(tmp_path / "tfrecord") as writer:
        writer.write(b"one")
    write(tmp_path / "array", [b"one"])
    with pytest.raises(ps.SchemaError, match="expected an ArrayRecord file, got a TFRecord file"):
        ps.ArrayRecordReader(tmp_path / "tfrecord")
    with pytest.raises(ps.SchemaError, match="expected a TFRecord file, got an ArrayRecord file"):
        ps.TFRecordReader(tmp_path / "array")
    with pytest.raises(ps.NotFoundError):
        ps.ArrayRecordReader(tmp_path / "no")


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError), ps.ArrayRecordWriter(tmp_path / "a") as writer:
        writer.write_records([b"one", "two"])  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []


def chunk_of(offsets: Sequence[int], at: int) -> int:
    return int(np.searchsorted(offsets, at, side="right")) - 1


@pytest.mark.parametrize("theirs", [False, True])
@pytest.mark.parametrize("name", ["uncompressed", "zstd"])
def test_every_flipped_bit_is_found_and_costs_one_chunk(tmp_path: Path, name: str, theirs: bool) -> None:
    records = some_records(120, largest=4000)
    path, out = tmp_path / "a", tmp_path / "b"
    if theirs:
        whole = write_theirs(path, records, f"group_size:3,{name}")
    else:
        format = FORMATS[name]
        whole = write(path, records, ps.ArrayRecord(group_size=3, compression=format.compression))
    offsets = ps.ArrayRecordReader(path).offsets.tolist()
    rng = random.Random(1)
    places = [*range(64), *rng.sample(range(64, offsets[-1]), 60), *rng.sample(range(offsets[-1], len(whole)), 25)]
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        report = verify(path)
        assert not report.whole, at
        salvage_array_records(path, out)
        kept = read_theirs(out)
        if 64 <= at < offsets[-1]:
            chunk = chunk_of(offsets, at)
            assert kept == records[: 3 * chunk] + records[3 * chunk + 3 :], at
            assert (report.gaps[0].offset, report.gaps[0].record) == (offsets[chunk], 3 * chunk)
            with pytest.raises(ps.CorruptionError) as caught:
                ps.ArrayRecordReader(path)[3 * chunk + 1]
            place = (caught.value.path, caught.value.offset, caught.value.record)
            assert place == (str(path), offsets[chunk], 3 * chunk + 1)
            assert f"chunk {chunk}" in str(caught.value)
        else:
            assert kept == records, at


def test_a_file_that_was_never_closed_is_told_and_salvaged(tmp_path: Path) -> None:
    records = some_records(300)
    path = tmp_path / "a"
    whole = write(path, records)
    offsets = ps.ArrayRecordReader(path).offsets
    for length in (0, 64, 1000, BLOCK, len(whole) // 2, len(whole) - BLOCK, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises((ps.CorruptionError, ps.SchemaError), match="expected"):
            ps.ArrayRecordReader(path)
        if length >= 64:
            report = salvage_records(path, tmp_path / "b")
            assert not report.whole
            assert list(ps.TFRecordReader(tmp_path / "b")) == records[: int((offsets[1:] <= length).sum())]


def test_a_chunk_may_hold_much_more_than_it_takes(tmp_path: Path) -> None:
    zeros = [bytes(150_000_000)]
    write(tmp_path / "a", zeros)
    assert (tmp_path / "a").stat().st_size == 2 * BLOCK
    assert ps.ArrayRecordReader(tmp_path / "a")[0] == zeros[0]
