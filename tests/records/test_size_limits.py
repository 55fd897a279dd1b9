"""Memory by untrusted numbers: sizes that come from data or a schema are checked before memory is taken for them."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli import main
from penstock.records.shard import verify
from penstock.records.tfrecord import salvage_records

ADDRESS_SPACE = 3 << 30  # what numpy and the threads of a process map is a part of it


def run_limited(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process that can take 3 GiB of address space; what it raises is printed as one line."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    script = f"""
import penstock as ps
try:
{body}
except (ps.PenstockError, MemoryError) as error:
    print(type(error).__name__, error)
"""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
        check=False,
    )


def checked(code: str, cwd: Path, *said: str) -> None:
    done = run_limited(code, cwd)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout.strip(), done.stderr[-2000:]
    for words in said:
        assert words in done.stdout, done.stdout


def write_empty(path: Path, count: int = 256) -> None:
    with ps.TFRecordWriter(path) as writer:
        for _ in range(count):
            writer.write(b"")


def deflated_zeros(count: int) -> bytes:
    """Raw deflate blocks of zeros: one piece, repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    return piece * (count >> 24)


def bomb(path: Path, size: int, compression: str, before: list[bytes]) -> None:
    """Write some records, and a frame of `size` zeros whose length has a good CRC, into a few hundred KB."""
    with ps.TFRecordWriter(path) as writer:
        for record in before:
            writer.write(record)
    length = struct.pack("<Q", size)
    start = path.read_bytes() + length + struct.pack("<I", ps.masked_crc32c(length))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH) + deflated_zeros(size)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data += packer.compress(bytes(4)) + packer.flush()
    zeros, checksum = bytes(1 << 24), zlib.crc32 if compression == "gzip" else zlib.adler32
    total = checksum(start)
    for _ in range(size >> 24):
        total = checksum(zeros, total)
    total = checksum(bytes(4), total)
    if compression == "gzip":
        trailer = struct.pack("<II", total, (len(start) + size + 4) % 2**32)
        path.write_bytes(bytes.fromhex("1f8b0800000000000003") + data + trailer)
    else:
        path.write_bytes(b"\x78\x01" + data + struct.pack(">I", total))


# Rows


@pytest.mark.parametrize(
    "field", ["float32[500000000]?", "float32[30000000]?", "str[100000000]?", "uint8[1000000000]?", "bytes[3000000]?"]
)
def test_missing_rows_of_a_wide_column_are_an_error(tmp_path: Path, field: str) -> None:
    write_empty(tmp_path / "m.tfrecord")
    code = f'print(len(ps.load("m.tfrecord", schema={{"x": "{field}"}})["train"][0:256]["x"]))'
    checked(code, tmp_path, "SchemaError", "bytes", "max_row_bytes")
    code = f'for batch in ps.load("m.tfrecord", schema={{"x": "{field}"}})["train"].batch(200): print(len(batch))'
    checked(code, tmp_path, "SchemaError", "max_row_bytes")
    code = f'print(ps.Codec({{"x": "{field}"}}).decode([b""] * 256))'
    checked(code, tmp_path, "SchemaError", "max_row_bytes")


def test_missing_rows_are_counted_over_the_pieces_of_a_batch(tmp_path: Path) -> None:
    write_empty(tmp_path / "m.tfrecord", 60_000)
    code = 'for batch in ps.load("m.tfrecord", schema={"x": "float32[8000]?"})["train"].batch(60000): print(len(batch))'
    checked(code, tmp_path, "SchemaError", "missing rows", "max_row_bytes")


def test_missing_rows_within_the_limit_are_read(tmp_path: Path) -> None:
    write_empty(tmp_path / "m.tfrecord")
    rows = ps.load(str(tmp_path / "m.tfrecord"), schema={"x": "float32[1000]?"})["train"][0:256]["x"]
    assert rows.shape == (256, 1000)
    assert np.ma.getmaskarray(rows).all()


def test_a_zlib_field_inflates_to_at_most_a_row(tmp_path: Path) -> None:
    end = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = b"\x78\x01" + deflated_zeros(5 << 28) + end.flush() + bytes(4)
    assert len(stream) < 2 << 20
    feature = b"\x0a" + varint(len(stream)) + stream
    feature = b"\x0a" + varint(len(feature)) + feature
    entry = b"\x0a\x01x\x12" + varint(len(feature)) + feature
    features = b"\x0a" + varint(len(entry)) + entry
    with ps.TFRecordWriter(tmp_path / "z.tfrecord") as writer:
        writer.write(b"\x0a" + varint(len(features)) + features)
    code = """
schema = {"x": ps.Field(dtype="uint8", shape=(None,), encoding="zlib")}
print(ps.load("z.tfrecord", schema=schema)["train"][0]["x"].shape)
"""
    checked(code, tmp_path, "CorruptionError", "zlib stream of at most 1073741824 bytes", "max_row_bytes")


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_many_missing_columns_are_decoded_a_few_rows_at_a_time(tmp_path: Path) -> None:
    write_empty(tmp_path / "m.tfrecord", 20_000)
    code = """
schema = {f"c{i}": "int8?" for i in range(3000)}
for batch in ps.load("m.tfrecord", schema=schema)["train"].batch(5000): last = batch
print(len(last), last["c7"].shape)
"""
    checked(code, tmp_path, "3000 (5000,)")


# Records


@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_frame_of_gigabytes_is_refused_before_it_is_inflated(tmp_path: Path, compression: str) -> None:
    path, size = tmp_path / "b.tfrecord", 5 << 28
    bomb(path, size, compression, [b"one", b"two"])
    assert path.stat().st_size < 4 << 20
    said = ("CorruptionError", f"expected a record of at most 1073741824 bytes, got {size}", "max_row_bytes")
    checked('ps.load("b.tfrecord", schema={"x": "int64?"})["train"][0]', tmp_path, *said)
    checked('ps.TFRecordReader("b.tfrecord")[0]', tmp_path, *said)
    code = """
from penstock.records.shard import verify
report = verify("b.tfrecord")
print(report.records, report.gaps)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss has the parent's
print(int(peak.split()[1]) < 500_000)
"""
    checked(code, tmp_path, "2 (Gap(", f"bytes={size + 16}", "at most 1073741824 bytes", "True")


def test_larger_records_are_read_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with ps.TFRecordWriter(path, ps.TFRecord(compression="gzip")) as writer:
        writer.write(b"small")
        writer.write(bytes(3000))
    before = ps.max_row_bytes(1000)
    try:
        assert before == 1 << 30
        with pytest.raises(ps.CorruptionError, match="at most 1000 bytes, got 3000"):
            ps.TFRecordReader(path, index=False)
        assert [gap.record for gap in verify(path).gaps] == [1]
        assert salvage_records(path, tmp_path / "saved").records == 1
        with pytest.raises(ps.SchemaError, match="a row of at most 1000 bytes, got 300 int64 values"):
            ps.Codec({"x": "int64[300]"})
    finally:
        assert ps.max_row_bytes(before) == 1000
    assert ps.max_row_bytes() == 1 << 30
    assert len(ps.TFRecordReader(path, index=False)[1]) == 3000
    assert main(["--max-row-bytes", "1000", "verify", str(path)]) == 1
    assert main(["--max-row-bytes", "10000", "verify", str(path)]) == 0
    assert ps.max_row_bytes() == 1 << 30, "a command changes nothing for its caller"


@pytest.mark.parametrize("limit", [0, -1, 2**64, 1.5, "1", True])
def test_a_limit_is_a_positive_number(limit: object) -> None:
    with pytest.raises(ps.ArgumentError, match="expected a limit of 1 or more bytes"):
        ps.max_row_bytes(limit)  # type: ignore[arg-type]
    assert ps.max_row_bytes() == 1 << 30


# Chunks of ArrayRecord files, members of tars


def test_a_chunk_that_inflates_out_of_proportion_is_refused(tmp_path: Path) -> None:
    code = """
from penstock.records.array_record import ArrayRecord, ArrayRecordWriter, ArrayRecordReader
before = ps.max_row_bytes(1 << 34)
with ArrayRecordWriter("a.array_record", ArrayRecord(group_size=20, compression="zstd")) as writer:
    for _ in range(20): writer.write(bytes(1 << 25))
ps.max_row_bytes(1 << 28)
print(len(ArrayRecordReader("a.array_record")[3]))
"""
    checked(code, tmp_path, "CorruptionError", "a chunk of records of at most 268435456 bytes, got 671088640")


def test_a_member_of_a_compressed_tar_is_read_within_the_limit(tmp_path: Path) -> None:
    header = bytearray(512)
    header[:5] = b"a.txt"
    header[100:108] = b"0000644\0"
    header[124:136] = b"%011o\0" % (5 << 28)
    header[156:157] = b"0"
    header[257:265] = b"ustar\x0000"
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    start, end = zlib.compressobj(9, zlib.DEFLATED, -15), zlib.compressobj(9, zlib.DEFLATED, -15)
    data = start.compress(bytes(header)) + start.flush(zlib.Z_FULL_FLUSH) + deflated_zeros(5 << 28)
    data += end.compress(bytes(1024)) + end.flush()
    total = zlib.crc32(bytes(header))
    for _ in range(5 << 4):
        total = zlib.crc32(bytes(1 << 24), total)
    trailer = struct.pack("<II", zlib.crc32(bytes(1024), total), (512 + (5 << 28) + 1024) % 2**32)
    (tmp_path / "t.tar.gz").write_bytes(bytes.fromhex("1f8b0800000000000003") + data + trailer)
    checked('print(ps.load("t.tar.gz")["train"][0])', tmp_path, "Error")


# Images


def test_a_header_of_many_pixels_allocates_nothing(tmp_path: Path) -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 6, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", zlib.compress(bytes(1 << 20)))
        + chunk(b"IEND", b"")
    )
    (tmp_path / "p" / "a").mkdir(parents=True)
    (tmp_path / "p" / "a" / "x.png").write_bytes(png)
    code = """
ps.build(ps.image_folder("p"), "o")
print(ps.load("o")["train"][0]["image"].shape)
"""
    checked(code, tmp_path, "Error", "60000 x 60000 pixels")
