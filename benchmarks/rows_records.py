"""The rows of the record core: decode, encode, random reads, checksums, memory, and the limits of the machine."""

from __future__ import annotations

from benchmarks.contenders import bagz, crc32c, limits, penstock, tensorflow, tfds
from benchmarks.data import GENERATED
from benchmarks.rows import OURS, Contender, Limit, Row, Target

TF_DATA = "tf.data"
TF_IO = "tf.io"
TF_IO_REUSED = "tf.io, message reused"


def _decode(workload: str, title: str, target: Target) -> Row:
    shard = (tensorflow.SHARD[workload],)
    return Row(
        f"decode_{workload}",
        title,
        "examples/s",
        {
            OURS: Contender(penstock.decode(workload), shard),
            TF_DATA: Contender(tensorflow.decode(workload), shard),
        },
        {TF_DATA: target},
    )


def _checksum(name: str, title: str, length: int) -> Row:
    return Row(
        name,
        title,
        "GB/s",
        {OURS: Contender(crc32c.ours(length)), "google-crc32c": Contender(crc32c.google(length))},
        {"google-crc32c": Target(must=0.9, aim=1.2)},
    )


W1_SHARD = (tensorflow.SHARD["w1"],)
W3_SHARD = (tensorflow.SHARD["w3"],)

ROWS = (
    _decode("w1", "decode W1, tabular", Target(must=8, aim=13)),
    _decode("w2", "decode W2, ragged tokens", Target(must=4, aim=8)),
    _decode("w3", "decode W3, JPEG bytes", Target(must=2.5, aim=4.5)),
    Row(
        "write_w1_columns",
        "encode + write W1 from columns",
        "examples/s",
        {
            OURS: Contender(penstock.write_columns("w1"), W1_SHARD),
            TF_IO: Contender(tensorflow.write_w1_columns, W1_SHARD),
            TF_IO_REUSED: Contender(tensorflow.write_w1_reused, W1_SHARD),
        },
        {TF_IO: Target(must=30, aim=60)},
    ),
    Row(
        "write_w1_dicts",
        "encode + write W1 from dicts",
        "examples/s",
        {
            OURS: Contender(penstock.write_examples, W1_SHARD),
            TF_IO: Contender(tensorflow.write_w1_examples, W1_SHARD),
        },
        {TF_IO: Target(must=6, aim=12)},
    ),
    Row(
        "write_w3",
        "encode + write W3",
        "examples/s",
        {
            OURS: Contender(penstock.write_columns("w3"), W3_SHARD),
            TF_IO: Contender(tensorflow.write_w3, W3_SHARD),
        },
        {TF_IO: Target(must=2)},
    ),
    Row(
        "random_w1",
        "random single reads of W1",
        "examples/s",
        {
            OURS: Contender(penstock.random_reads, W1_SHARD),
            "bagz + NumPy views": Contender(bagz.random_reads, (bagz.W1,)),
            "TFDS, ArrayRecord": Contender(tfds.random_reads, (tfds.W1,)),
        },
        {"bagz + NumPy views": Target(must=1.2, aim=3)},
    ),
    _checksum("crc32c_1mb", "crc32c, 1 MB", 1_000_000),
    _checksum("crc32c_268b", "crc32c, 268 B", 268),
    Row(
        "memory_w3",
        "peak memory of a W3 epoch",
        "MB",
        {OURS: Contender(penstock.epoch_memory("w3"), W3_SHARD)},
        limit=Limit(must=300),
        fresh=True,
    ),
    Row(
        "limit_copy",
        "limit: memory copy",
        "GB/s",
        {f"memcpy, {threads} thread{'s'[: threads - 1]}": Contender(limits.copy_memory(threads)) for threads in (1, 2)},
    ),
    Row(
        "limit_read",
        "limit: read from the page cache",
        "GB/s",
        {
            f"pread, {threads} thread{'s'[: threads - 1]}": Contender(limits.read_cached(threads), W3_SHARD)
            for threads in (1, 2)
        },
    ),
    Row(
        "limit_write",
        "limit: write a new file, W3's bytes",
        "GB/s",
        {"write, 1 thread": Contender(limits.write_new_file, (GENERATED["w3"],))},
    ),
)
