"""TFRecord files: every case that TensorFlow passes over in silence, and how nothing is lost here."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from tests.support.record_oracle import frame, framed, gzip_member, read_with_tensorflow

import penstock as ps
from penstock.records.index import sidecar_path
from penstock.records.shard import verify
from penstock.records.tfrecord import salvage_records

A, B, C = b"first", b"the second", b""
ABC = framed([A, B, C])
AB = framed([A, B])


def zlib_stream(data: bytes) -> bytes:
    return zlib.compress(data)


def with_bad_crc32(data: bytes) -> bytes:
    member = bytearray(gzip_member(data))
    member[-8] ^= 1
    return bytes(member)


class Case(NamedTuple):
    """A file; what TensorFlow reads from it, and whether an error ends it; what is whole, and where our error is."""

    name: str
    content: bytes
    tensorflow: list[bytes]
    tensorflow_error: bool
    whole: list[bytes]
    offset: int | None  # of our error; None when there is none
    compression: str = ""


CASES = [
    Case("whole", ABC, [A, B, C], False, [A, B, C], None),
    Case("empty file", b"", [], False, [], None),
    *(
        Case(f"{extra} trailing bytes", ABC + frame(b"x")[:extra], [A, B, C], False, [A, B, C], len(ABC))
        for extra in (1, 7, 11)
    ),
    Case("a header and no more", AB + frame(b"x")[:12], [A, B], True, [A, B], len(AB)),
    Case("a short body", AB + frame(b"a long record")[:20], [A, B], True, [A, B], len(AB)),
    Case("a short footer", AB + frame(b"x")[:-2], [A, B], True, [A, B], len(AB)),
    Case("16 trailing zeros", AB + bytes(16), [A, B], True, [A, B], len(AB)),
    Case("a bad length", frame(A) + b"\x01" + frame(B)[1:] + frame(C), [A], True, [A, C], len(frame(A))),
    Case("a bad length CRC", frame(A) + frame(B)[:8] + b"\0" + frame(B)[9:] + frame(C), [A], True, [A, C], 21),
    Case("bad data", frame(A) + frame(B)[:14] + b"\0" + frame(B)[15:] + frame(C), [A], True, [A, C], 21),
    Case("a bad data CRC", frame(A) + frame(B)[:-1] + b"\0" + frame(C), [A], True, [A, C], 21),
    Case("gzip", gzip_member(ABC), [A, B, C], False, [A, B, C], None, "GZIP"),
    Case("gzip members", gzip_member(frame(A)) + gzip_member(AB), [A, A, B], False, [A, A, B], None, "GZIP"),
    Case(
        "gzip members that split a record",
        gzip_member(ABC[:30]) + gzip_member(ABC[30:]),
        [A, B, C],
        False,
        [A, B, C],
        None,
        "GZIP",
    ),
    Case(
        "an empty gzip member in the middle",
        gzip_member(frame(A)) + gzip_member(b"") + gzip_member(frame(B)),
        [A],
        False,
        [A, B],
        None,
        "GZIP",
    ),
    Case("an empty gzip member first", gzip_member(b"") + gzip_member(frame(B)), [], False, [B], None, "GZIP"),
    Case("gzip without a trailer", gzip_member(ABC, trailer=False), [A, B, C], False, [A, B, C], len(ABC), "GZIP"),
    Case("gzip with a bad CRC32", with_bad_crc32(ABC), [], True, [A, B, C], len(ABC), "GZIP"),
    Case("zlib", zlib_stream(ABC), [A, B, C], False, [A, B, C], None, "ZLIB"),
    Case("two zlib streams", zlib_stream(AB) + zlib_stream(frame(C)), [A, B], False, [A, B, C], None, "ZLIB"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tensorflow_does_what_the_table_says(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(case.content)
    records, error = read_with_tensorflow(path, case.compression)
    assert records == case.tensorflow
    assert (error is not None) == case.tensorflow_error, error


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_we_read_all_there_is_and_report_the_rest(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(case.content)
    if case.offset is None:
        assert list(ps.TFRecordReader(path)) == case.whole
    else:
        with pytest.raises(ps.CorruptionError) as caught:
            list(ps.TFRecordReader(path))
        assert (caught.value.path, caught.value.offset) == (str(path), case.offset)
        assert f"{path}, offset {case.offset}" in str(caught.value)
    report = verify(path)
    assert report.records == len(case.whole)
    assert report.record_bytes == sum(map(len, case.whole))
    assert report.whole == (case.offset is None)
    assert [gap.offset for gap in report.gaps] == ([] if case.offset is None else [case.offset])
    assert salvage_records(path, tmp_path / "saved.tfrecord").gaps == report.gaps
    assert list(ps.TFRecordReader(tmp_path / "saved.tfrecord")) == case.whole


def test_tensorflow_gives_up_a_file_where_we_lose_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(A) + frame(B)[:-1] + b"\0" + frame(C) + frame(A))
    ignored = tf.data.TFRecordDataset([str(path)]).ignore_errors()
    assert [record.numpy() for record in ignored] == [A]
    assert verify(path).records == 3


# Reading


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.tfrecord"
    path.write_bytes(framed(b"%d" % number for number in range(10)))
    return path


def test_a_reader_is_a_sequence_of_bytes(shard: Path) -> None:
    reader = ps.TFRecordReader(shard)
    assert len(reader) == 10
    assert reader[0] == b"0"
    assert reader[-1] == reader[9] == reader[np.int64(9)] == reader[np.uint8(9)] == b"9"
    assert list(reader) == [b"%d" % number for number in range(10)]
    assert next(reversed(reader)) == b"9"
    assert b"7" in reader
    assert b"x" not in reader
    assert list(reader[2:5]) == [b"2", b"3", b"4"]
    assert list(reader[::-3]) == [b"9", b"6", b"3", b"0"]
    assert list(reader[7:3]) == []
    assert list(reader[[5, -1, 5]]) == [b"5", b"9", b"5"]
    assert list(reader[np.array([1, 8])]) == [b"1", b"8"]
    assert reader.offsets.tolist() == [17 * number for number in range(11)]
    assert "10 records" in repr(reader)


@pytest.mark.parametrize("index", [10, -11, 2**40, [0, 10], np.array([-11])])
def test_a_position_outside_is_an_index_error_that_says_how_many_there_are(shard: Path, index: object) -> None:
    with pytest.raises(IndexError, match="the 10 records") as caught:
        ps.TFRecordReader(shard)[index]  # type: ignore[index]
    assert isinstance(caught.value, ps.RecordIndexError)
    assert str(shard) in str(caught.value)


def test_a_position_that_is_no_integer_is_a_type_error(shard: Path) -> None:
    with pytest.raises(TypeError):
        ps.TFRecordReader(shard)[1.5]  # type: ignore[index]


def test_records_are_a_sequence_too(shard: Path) -> None:
    records = ps.TFRecordReader(shard)[:]
    assert (len(records), records[3], records[-1], records.nbytes) == (10, b"3", b"9", 10)
    with pytest.raises(IndexError):
        records[10]
    with pytest.raises(IndexError):
        records[-11]


def test_a_file_that_is_not_there_or_no_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        ps.TFRecordReader(tmp_path / "none")
    assert isinstance(caught.value, ps.StorageError)
    assert caught.value.errno == 2
    for folder in (tmp_path, ".", ".."):
        with pytest.raises(ps.StorageError, match="a directory"):
            ps.TFRecordReader(folder)


def test_batches_take_a_span_in_order(shard: Path) -> None:
    codec = ps.Codec({"n": "int64"})
    path = shard.with_name("n.tfrecord")
    with ps.TFRecordWriter(path) as writer:
        writer.write_columns(codec, {"n": np.arange(100)})
    reader = ps.TFRecordReader(path)
    for threads in (1, 2, 8):
        batches = [batch["n"].tolist() for batch in reader.batches(codec, 16, threads=threads)]
        assert batches == [list(range(n, min(n + 16, 100))) for n in range(0, 100, 16)]
    dropped = [len(batch["n"]) for batch in reader.batches(codec, 16, drop_remainder=True)]
    assert dropped == [16] * 6
    assert [batch["n"].tolist() for batch in reader.batches(codec, 3, start=-4, stop=None)] == [[96, 97, 98], [99]]
    assert list(reader.batches(codec, 3, start=5, stop=5)) == []
    assert reader.example(codec, -1) == {"n": 99}
    assert reader.examples(codec, [3, 1, 3])["n"].tolist() == [3, 1, 3]
    assert reader.examples(codec, slice(2, 4))["n"].tolist() == [2, 3]
    with pytest.raises(ps.SchemaError, match="at least one record a batch"):
        reader.batches(codec, 0)


def test_an_error_while_decoding_names_file_offset_record_and_field(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    written = ps.Codec({"n": "int64"}).encode({"n": np.arange(5)})
    other = ps.Codec({"n": "str"}).encode({"n": ["x"]})
    path.write_bytes(framed([*written, *other]))
    reader, codec = ps.TFRecordReader(path), ps.Codec({"n": "int64"})
    place = rf'{path}, offset {reader.offsets[5]}, record 5, field "n"'
    with pytest.raises(ps.SchemaError, match=place):
        list(reader.batches(codec, 2))
    with pytest.raises(ps.SchemaError, match=place):
        reader.example(codec, 5)
    with pytest.raises(ps.SchemaError, match=place):
        reader.examples(codec, [0, 5])


# Compression


@pytest.mark.parametrize(("name", "compression"), [("gzip", "GZIP"), ("zlib", "ZLIB"), (None, "")])
def test_both_sides_read_what_the_other_writes(name: str | None, compression: str, tmp_path: Path) -> None:
    records = [random.Random(number).randbytes(number * 37 % 5000) for number in range(300)]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with tf.io.TFRecordWriter(str(theirs), compression) as writer:
        for record in records:
            writer.write(record)
    reader = ps.TFRecordReader(theirs)
    assert reader.compression == name
    assert list(reader) == records
    assert reader[-7] == records[-7]
    with ps.TFRecordWriter(ours, ps.TFRecord(compression=name)) as writer:
        writer.write_records(records[:200])
        for record in records[200:]:
            writer.write(record)
    assert read_with_tensorflow(ours, compression) == (records, None)
    assert list(ps.TFRecordReader(ours)) == records


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_an_empty_shard_is_empty_for_everyone(compression: str | None, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    with ps.TFRecordWriter(path, ps.TFRecord(compression=compression)):
        pass
    assert len(ps.TFRecordReader(path)) == 0
    assert list(ps.TFRecordReader(path)) == []
    assert read_with_tensorflow(path, (compression or "").upper()) == ([], None)
    assert verify(path).whole


@pytest.mark.parametrize("level", [1, 9])
def test_the_level_decides_the_size_alone(level: int, tmp_path: Path) -> None:
    records = [bytes(random.Random(number).choices(b"abcdef", k=500)) for number in range(200)]
    path = tmp_path / "a"
    with ps.TFRecordWriter(path, ps.TFRecord(compression="gzip", level=level)) as writer:
        writer.write_records(records)
    assert list(ps.TFRecordReader(path)) == records


def test_options_are_checked() -> None:
    with pytest.raises(ps.ArgumentError, match='None, "gzip" or "zlib", got \'lzma\''):
        ps.TFRecord(compression="lzma")
    with pytest.raises(ps.ArgumentError, match="from 1 to 9, got 12"):
        ps.TFRecord(level=12)


# Writing


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_nothing_is_seen_until_the_writer_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with ps.TFRecordWriter(path, sync=True) as writer:
        writer.write(A)
        assert not path.exists()
        assert len(writer) == 1
    assert names(tmp_path) == ["a"]
    content = path.read_bytes()
    assert content == frame(A)
    assert writer.summary is not None
    assert (writer.summary.records, writer.summary.bytes) == (1, len(content))
    assert writer.summary.crc32c == ps.crc32c(content)
    with pytest.raises(ps.SchemaError, match="closed"):
        writer.write(A)


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(framed([A]))

    def fail() -> None:
        with ps.TFRecordWriter(path) as writer:
            writer.write_records([B] * 1000)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path) == ["a"]
    assert list(ps.TFRecordReader(path)) == [A]


def test_a_writer_that_is_forgotten_leaves_nothing(tmp_path: Path) -> None:
    writer = ps.TFRecordWriter(tmp_path / "a")
    writer.write(A)
    del writer
    assert names(tmp_path) == []


def test_an_example_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    codec = ps.Codec({"n": "int64"})

    def fail() -> None:
        with ps.TFRecordWriter(tmp_path / "a") as writer:
            writer.write_examples(codec, [{"n": 1}, {"n": "one"}])

    with pytest.raises(ps.SchemaError, match=r"expected int64, got str - at \[1\].n"):
        fail()
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        ps.TFRecordWriter(tmp_path / "none" / "a")
    assert isinstance(caught.value, ps.StorageError)


def test_a_killed_process_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(framed([A]))
    script = f"""
        import os, signal, penstock as ps
        writer = ps.TFRecordWriter({str(path)!r})
        writer.write_records([b"x" * 100000] * 100)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run(script)
    assert done.returncode == -signal.SIGKILL
    assert list(ps.TFRecordReader(path)) == [A]
    leftover = [name for name in names(tmp_path) if name != "a"]
    assert all(name.startswith(".a.") and name.endswith(".partial") for name in leftover)


def test_a_stale_index_is_removed_when_the_shard_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with ps.TFRecordWriter(path, index=True) as writer:
        writer.write(A)
    assert sidecar_path(path).exists()
    with ps.TFRecordWriter(path) as writer:
        writer.write_records([A, B])
    assert names(tmp_path) == ["a"]
    assert list(ps.TFRecordReader(path)) == [A, B]


# Damage


def test_a_flipped_bit_in_each_record_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """One bit in each of 1,000 records, anywhere in the frame, between records that are whole."""
    chance = random.Random(7)
    whole = [chance.randbytes(chance.randrange(0, 200)) for _ in range(2000)]
    content = bytearray()
    damaged: list[tuple[int, int]] = []
    for number, record in enumerate(whole):
        piece = bytearray(frame(record))
        if number % 2:
            damaged.append((len(content), len(piece)))
            bit = chance.randrange(len(piece) * 8)
            piece[bit // 8] ^= 1 << bit % 8
        content += piece
    path = tmp_path / "a"
    path.write_bytes(content)
    report = verify(path)
    assert [(gap.offset, gap.bytes) for gap in report.gaps] == damaged
    assert [gap.record for gap in report.gaps] == list(range(1, 1001))
    assert report.records == 1000
    salvage_records(path, tmp_path / "saved")
    assert list(ps.TFRecordReader(tmp_path / "saved")) == whole[::2]
    # TensorFlow stops at the first.
    assert read_with_tensorflow(path)[0] == whole[:1]


def test_neighbours_that_are_damaged_are_one_gap_or_two_but_never_lost(tmp_path: Path) -> None:
    chance = random.Random(11)
    for bad in ({3}, {3, 4}, {0}, {9}, set(range(10)), {0, 9}, set(range(1, 10))):
        whole = [chance.randbytes(chance.randrange(1, 100)) for _ in range(10)]
        pieces = [bytearray(frame(record)) for record in whole]
        for number in bad:
            pieces[number][chance.randrange(len(pieces[number]))] ^= 0x10
        path = tmp_path / "a"
        path.write_bytes(b"".join(pieces))
        report = salvage_records(path, tmp_path / "saved")
        assert list(ps.TFRecordReader(tmp_path / "saved")) == [r for n, r in enumerate(whole) if n not in bad]
        assert sum(gap.bytes for gap in report.gaps) == sum(len(pieces[number]) for number in bad)


def test_damage_in_the_data_is_an_error_where_it_is_read_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    content = bytearray(framed([A, B, A]))
    content[len(frame(A)) + 12] ^= 1
    path.write_bytes(content)
    reader = ps.TFRecordReader(path)  # the headers are whole
    assert (reader[0], reader[2]) == (A, A)
    for read in (lambda: reader[1], lambda: reader[:], lambda: reader[[2, 1]], lambda: list(reader)):
        with pytest.raises(ps.CorruptionError) as caught:
            read()
        assert (caught.value.path, caught.value.offset, caught.value.record) == (str(path), len(frame(A)), 1)
        assert "CRC" in str(caught.value)


def run(script: str, *, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=seconds, check=False)


def test_a_file_truncated_under_an_open_reader_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "a"
    codec = ps.Codec({"n": "int64[?]"})
    rows = ps.Ragged(np.full(20_000_000, 2**20), np.arange(0, 20_000_001, 1000))
    with ps.TFRecordWriter(path) as writer:
        writer.write_columns(codec, {"n": rows})  # 60 MB: far more than a feed reads ahead
    script = f"""
        import os, penstock as ps
        reader = ps.TFRecordReader({str(path)!r})
        codec = ps.Codec({{"n": "int64[?]"}})
        assert reader[-1]
        batches = reader.batches(codec, 10, threads=1)
        next(batches)
        os.truncate({str(path)!r}, 5000)
        def tried(read):
            try:
                read()
            except ps.CorruptionError as error:
                assert "truncated" in str(error) and error.path == {str(path)!r}, error
                return True
        assert tried(lambda: reader[-1])
        assert tried(lambda: reader[19_990:])
        assert tried(lambda: reader.example(codec, 19_999))
        assert tried(lambda: list(batches))
        assert reader[0]
        print("all reported")
    """
    done = run(script)
    assert (done.returncode, done.stdout) == (0, "all reported\n"), done.stderr


@pytest.mark.alone
@pytest.mark.parametrize("length", [2**62, 2**64 - 1, 2**64 - 16, 2**40])
@pytest.mark.parametrize("wrap", [bytes, gzip_member, zlib_stream])
def test_a_hostile_length_allocates_nothing(length: int, wrap: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """A header that declares far more than there is, with a CRC that holds: an error within a few MB of memory."""
    header = struct.pack("<Q", length)
    header += struct.pack("<I", ps.masked_crc32c(header))
    path = tmp_path / "a"
    path.write_bytes(wrap(frame(A) + header + bytes(100)))
    script = f"""
        import resource, penstock as ps
        from penstock.records.shard import verify
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
        try:
            ps.TFRecordReader({str(path)!r})
        except ps.CorruptionError as error:
            assert error.offset == {len(frame(A))} and "{length}" in str(error) or "more bytes" in str(error), error
            print("reported")
        report = verify({str(path)!r})
        assert report.records == 1 and len(report.gaps) == 1, report
        print(report.gaps[0].offset)
    """
    done = run(script)
    assert done.stdout.split() == ["reported", str(len(frame(A)))], done.stderr


def test_a_long_run_of_zeros_inflates_to_no_more_than_it_is(tmp_path: Path) -> None:
    """A shard that inflates a thousandfold is one of broken frames: it is told at the first."""
    path = tmp_path / "a"
    path.write_bytes(gzip_member(bytes(50 << 20)))
    with pytest.raises(ps.CorruptionError) as caught:
        ps.TFRecordReader(path)
    assert caught.value.offset == 0
