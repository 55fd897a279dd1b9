"""Salvage of compressed files: every record that can be inflated and passes its checksum is saved."""

from __future__ import annotations

import gzip
import itertools
import random
import zlib
from pathlib import Path

import pytest

import penstock as ps
from penstock.records.tfrecord import salvage_records

HEADER = {"zlib": 2, "gzip": 10}
TRAILER = {"zlib": 4, "gzip": 8}


def framed(path: Path, records: list[bytes]) -> list[bytes]:
    """The frames of some records, by an uncompressed file of them."""
    with ps.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    whole, ends = path.read_bytes(), [0]
    for record in records:
        ends.append(ends[-1] + len(record) + 16)
    return [whole[begin:end] for begin, end in itertools.pairwise(ends)]


def packed(frames: list[bytes], compression: str) -> bytes:
    """One compressed member; at level 6 a flipped byte often changes some literals and nothing else."""
    joined = b"".join(frames)
    return gzip.compress(joined, 6, mtime=0) if compression == "gzip" else zlib.compress(joined, 6)


def inflatable(member: bytes, compression: str) -> bytes:
    """The bytes that inflate of a damaged member, fed one byte at a time; those of the last byte may be missing."""
    inflater = zlib.decompressobj(wbits=-15)
    out = bytearray()
    try:
        for at in range(HEADER[compression], len(member)):
            out += inflater.decompress(member[at : at + 1])
    except zlib.error:
        pass
    return bytes(out)


def some_records(seed: int, count: int = 40) -> list[bytes]:
    """Records of text and of noise, none of them contained in another."""
    rng = random.Random(seed)
    words = [bytes(rng.randrange(97, 123) for _ in range(rng.randrange(3, 9))) for _ in range(30)]
    made = []
    for number in range(count):
        text = b" ".join(rng.choice(words) for _ in range(rng.randrange(2, 12)))
        made.append(b"%04d " % number + (text if number % 3 else rng.randbytes(rng.randrange(1, 60))))
    return made


def saved(tmp_path: Path, content: bytes) -> list[bytes]:
    damaged, out = tmp_path / "damaged", tmp_path / "saved.tfrecord"
    damaged.write_bytes(content)
    out.unlink(missing_ok=True)
    salvage_records(damaged, out)
    return list(ps.TFRecordReader(out, index=False))


def is_covered(expected: list[bytes], found: list[bytes], records: list[bytes]) -> bool:
    """Whether all expected records were found, and nothing but records, in order.

    A flipped bit may make a copy of what comes before of later data, whole records among it.
    """
    once = list(dict.fromkeys(found))
    return set(expected) <= set(found) and once == [record for record in records if record in set(found)]


@pytest.mark.parametrize("compression", ["zlib", "gzip"])
def test_a_flipped_byte_costs_only_what_cannot_be_inflated(tmp_path: Path, compression: str) -> None:
    records = some_records(1)
    frames = framed(tmp_path / "plain", records)
    whole = packed(frames, compression)
    rng = random.Random(2)
    wrong, last_alone = [], 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        there = inflatable(bytes(damaged), compression)
        expected = [record for record, frame in zip(records, frames, strict=True) if frame in there]
        last_alone += expected[-1:] == records[-1:] and len(expected) == len(records) - 1
        if not is_covered(expected, saved(tmp_path, bytes(damaged)), records):
            wrong.append(at)
    assert not wrong
    assert last_alone > 50, "many flips damage one record, and the last one is whole"


@pytest.mark.parametrize("compression", ["zlib", "gzip"])
def test_damage_in_one_member_costs_nothing_of_the_others(tmp_path: Path, compression: str) -> None:
    records = some_records(3, 30)
    frames = framed(tmp_path / "plain", records)
    members = [packed(frames[first : first + 10], compression) for first in (0, 10, 20)]
    start, rng = len(members[0]), random.Random(4)
    for at in range(start, start + len(members[1]), 3):
        damaged = bytearray(b"".join(members))
        damaged[at] ^= 1 << rng.randrange(8)
        found = saved(tmp_path, bytes(damaged))
        there = inflatable(bytes(damaged[start : start + len(members[1])]), compression)
        expected = [record for record, frame in zip(records[10:20], frames[10:20], strict=True) if frame in there]
        assert is_covered(records[:10] + expected + records[20:], found, records), at


@pytest.mark.parametrize("compression", ["zlib", "gzip"])
def test_a_truncated_file_gives_all_that_can_be_inflated(tmp_path: Path, compression: str) -> None:
    records = some_records(5)
    frames = framed(tmp_path / "plain", records)
    whole = packed(frames, compression)
    for length in range(HEADER[compression] + 10, len(whole), 7):
        there = inflatable(whole[:length], compression)
        expected = [record for record, frame in zip(records, frames, strict=True) if frame in there]
        assert is_covered(expected, saved(tmp_path, whole[:length]), records), length


@pytest.mark.parametrize("compression", ["zlib", "gzip"])
def test_the_report_names_what_is_wrong(tmp_path: Path, compression: str) -> None:
    records = some_records(6)
    frames = framed(tmp_path / "plain", records)
    damaged = bytearray(packed(frames, compression))
    damaged[-TRAILER[compression]] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(damaged)
    report = salvage_records(path, tmp_path / "saved.tfrecord")
    assert report.records == len(records)
    assert [gap.record for gap in report.gaps] == [len(records)]
    assert "checksum" in report.gaps[0].reason, report.gaps
