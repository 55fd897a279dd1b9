"""Indexes beside shards: ours, bound to their shard and checksummed, and the text that DALI reads."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from tests.support.record_oracle import frame, framed, gzip_member

import penstock as ps
from penstock.records.index import export_dali, import_dali, read_index, sidecar_path, write_index

RECORDS = [b"a", b"", b"third one", b"x" * 300]
OFFSETS = np.cumsum([0, *(len(record) + 16 for record in RECORDS)]).tolist()


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(RECORDS))
    return path


def test_an_index_holds_where_each_frame_begins(shard: Path) -> None:
    index = write_index(shard)
    assert sidecar_path(shard) == shard.with_name("a.tfrecord.index")
    assert index.offsets.tolist() == OFFSETS
    assert (len(index), index.compression) == (4, "none")
    assert (index.shard_size, index.shard_crc32c) == (OFFSETS[-1], ps.crc32c(shard.read_bytes()))
    assert read_index(shard) == index
    assert list(ps.TFRecordReader(shard)) == RECORDS
    assert list(ps.TFRecordReader(shard, index=sidecar_path(shard))) == RECORDS
    assert os.listdir(shard.parent).count("a.tfrecord.index") == 1
    assert len(os.listdir(shard.parent)) == 2


def test_its_bytes_are_those_that_the_format_says(shard: Path) -> None:
    write_index(shard)
    content = sidecar_path(shard).read_bytes()
    fixed = struct.pack("<8sIIQIIQ", b"PENSTIDX", 1, 0, OFFSETS[-1], ps.crc32c(shard.read_bytes()), 0, 4)
    body = fixed + struct.pack("<5Q", *OFFSETS)
    assert content == body + struct.pack("<I", ps.crc32c(body))


def test_a_writer_makes_the_index_that_a_scan_makes(tmp_path: Path) -> None:
    for compression in (None, "gzip", "zlib"):
        path = tmp_path / str(compression)
        with ps.TFRecordWriter(path, ps.TFRecord(compression=compression), index=True) as writer:
            writer.write_records(RECORDS[:2])
            for record in RECORDS[2:]:
                writer.write(record)
        written = read_index(path)
        assert written == write_index(path)
        assert written.compression == (compression or "none")
        assert written.offsets.tolist() == OFFSETS
        assert writer.summary is not None
        assert (written.shard_size, written.shard_crc32c) == (writer.summary.bytes, writer.summary.crc32c)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_offsets_of_a_compressed_shard_are_those_once_inflated(compression: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip_member(framed(RECORDS)) if compression == "gzip" else zlib.compress(framed(RECORDS)))
    index = write_index(path)
    assert (index.compression, index.offsets.tolist(), index.shard_size) == (compression, OFFSETS, path.stat().st_size)
    reader = ps.TFRecordReader(path, index=sidecar_path(path))
    assert (reader.compression, reader[2], list(reader)) == (compression, RECORDS[2], RECORDS)
    codec = ps.Codec({"n": "int64"})
    with ps.TFRecordWriter(path, ps.TFRecord(compression=compression), index=True) as writer:
        writer.write_columns(codec, {"n": np.arange(1000)})
    again = ps.TFRecordReader(path, index=sidecar_path(path))
    assert np.concatenate([batch["n"] for batch in again.batches(codec, 64)]).tolist() == list(range(1000))
    assert again.example(codec, -1) == {"n": 999}


def test_the_index_is_what_a_reader_goes_by(shard: Path) -> None:
    """With an index that fits, headers are not read: damage in the first one is told when it is read, not before."""
    write_index(shard)
    content = bytearray(shard.read_bytes())
    content[3] ^= 1
    shard.write_bytes(content)
    reader = ps.TFRecordReader(shard)
    assert reader[3] == RECORDS[3]
    with pytest.raises(ps.CorruptionError) as caught:
        reader[0]
    assert (caught.value.offset, caught.value.record) == (0, 0)
    with pytest.raises(ps.CorruptionError):
        ps.TFRecordReader(shard, index=False)


def test_every_damaged_byte_of_an_index_is_found(shard: Path) -> None:
    write_index(shard)
    sidecar = sidecar_path(shard)
    whole = sidecar.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        sidecar.write_bytes(damaged)
        with pytest.raises(ps.IndexMismatchError) as caught:
            read_index(shard)
        assert caught.value.path == str(sidecar)
        assert "penstock index" in str(caught.value)
        with pytest.raises(ps.IndexMismatchError):
            ps.TFRecordReader(shard, index=sidecar)
        assert list(ps.TFRecordReader(shard)) == RECORDS  # a scan takes its place
    for length in range(len(whole)):
        sidecar.write_bytes(whole[:length])
        with pytest.raises(ps.IndexMismatchError):
            read_index(shard)
        assert len(ps.TFRecordReader(shard)) == 4


def test_an_index_with_a_hostile_count_allocates_nothing(shard: Path) -> None:
    write_index(shard)
    body = bytearray(sidecar_path(shard).read_bytes()[:-4])
    for count in (2**64 - 1, 2**61, 5, 3):
        body[32:40] = struct.pack("<Q", count)
        sidecar_path(shard).write_bytes(body + struct.pack("<I", ps.crc32c(bytes(body))))
        with pytest.raises(ps.IndexMismatchError):
            read_index(shard)


def test_a_stale_index_is_not_gone_by(shard: Path) -> None:
    write_index(shard)
    longer = [*RECORDS, b"one more"]
    shard.write_bytes(framed(longer))
    assert list(ps.TFRecordReader(shard)) == longer
    with pytest.raises(ps.IndexMismatchError, match="changed after its index was made"):
        ps.TFRecordReader(shard, index=sidecar_path(shard))
    # As long as before, with other records in it.
    shard.write_bytes(framed([b"a", b"", b"third", b"y" * 304]))
    assert ps.TFRecordReader(shard)[2] == b"third"
    with pytest.raises(ps.IndexMismatchError):
        ps.TFRecordReader(shard, index=sidecar_path(shard))
    # Compressed since.
    shard.write_bytes(gzip_member(framed(RECORDS)))
    assert list(ps.TFRecordReader(shard)) == RECORDS


def test_a_stale_index_that_seems_to_fit_gives_an_error_and_never_a_wrong_record(shard: Path) -> None:
    """The same size and the same last record: the reads in between tell."""
    write_index(shard)
    moved = [b"", b"a", b"third one", b"x" * 300]
    shard.write_bytes(framed(moved))
    reader = ps.TFRecordReader(shard)
    for number in range(4):
        try:
            assert reader[number] == moved[number]
        except ps.CorruptionError:
            assert number < 2
    assert list(ps.TFRecordReader(shard, index=False)) == moved


def test_a_foreign_file_is_no_index(shard: Path) -> None:
    for content in (b"", b"not an index", framed([b"x" * 100]), b"PENSTIDX" + bytes(100)):
        sidecar_path(shard).write_bytes(content)
        with pytest.raises(ps.IndexMismatchError):
            read_index(shard)
        assert list(ps.TFRecordReader(shard)) == RECORDS
    with pytest.raises(ps.StorageError):
        read_index(shard.with_name("other"))
    with pytest.raises(ps.StorageError):
        ps.TFRecordReader(shard, index=shard.with_name("none.index"))


def test_an_empty_shard_has_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with ps.TFRecordWriter(path, index=True):
        pass
    assert read_index(path).offsets.tolist() == [0]
    assert len(ps.TFRecordReader(path, index=sidecar_path(path))) == 0


def test_a_damaged_shard_gets_no_index(shard: Path) -> None:
    shard.write_bytes(framed(RECORDS)[:-3])
    with pytest.raises(ps.CorruptionError, match="truncated"):
        write_index(shard)
    assert not sidecar_path(shard).exists()


# DALI


def lines(records: list[bytes]) -> str:
    """The `.idx` of these records, as DALI's own script writes it."""
    text, offset = "", 0
    for record in records:
        text += f"{offset} {len(frame(record))}\n"
        offset += len(frame(record))
    return text


def test_dalis_text_goes_both_ways(shard: Path) -> None:
    idx = shard.with_suffix(".idx")
    export_dali(shard, idx)
    assert idx.read_bytes() == lines(RECORDS).encode() == b"0 17\n17 16\n33 25\n58 316\n"
    index = import_dali(shard, idx)
    assert index.offsets.tolist() == OFFSETS
    assert read_index(shard) == index
    export_dali(shard, idx)  # by our index now
    assert idx.read_text() == lines(RECORDS)


def test_dalis_text_of_another_shard_is_refused(shard: Path) -> None:
    idx = shard.with_suffix(".idx")
    for text in (
        lines(RECORDS[:-1]),
        lines([*RECORDS, b"x"]),
        lines([b"", b"a", *RECORDS[2:]]),
        "",
        "0 17\n18 16\n",
        "0 17\nsome words\n",
        "0 17 4\n",
        "0 3\n",
        "-1 17\n",
    ):
        idx.write_text(text)
        with pytest.raises(ps.IndexMismatchError):
            import_dali(shard, idx)
        assert not sidecar_path(shard).exists()


def test_dali_has_no_index_of_compressed_shards(shard: Path) -> None:
    shard.write_bytes(gzip_member(framed(RECORDS)))
    idx = shard.with_suffix(".idx")
    with pytest.raises(ps.SchemaError, match="expected an uncompressed shard, got gzip"):
        export_dali(shard, idx)
    assert not idx.exists()
