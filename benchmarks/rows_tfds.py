"""The rows of the TFDS world: TorNet, and ArrayRecord against the libraries that read and write it."""

from __future__ import annotations

from benchmarks.contenders import array_record, grain, tfds, tornet
from benchmarks.contenders.penstock_load import DATASET
from benchmarks.data import GENERATED
from benchmarks.rows import FASTEST, OURS, Contender, Row, Target
from benchmarks.sources import SOURCES

TFDS, GRAIN, WHEEL = "TFDS", "Grain, 1/10 of it", "array_record"
STORED = array_record.STORED
TFDS_BUILD = f"{TFDS}, 1/10 of it"


def _epoch(name: str, title: str, *, shuffle: bool) -> Row:
    """Grain reads rows of fixed width as views, which is less work than records that say what they hold."""
    return Row(
        name,
        title,
        "examples/s",
        {
            OURS: Contender(array_record.load("w1", shuffle=shuffle), (STORED["w1"],)),
            GRAIN: Contender(grain.load(shuffle=shuffle), (grain.W1,)),
        },
        {GRAIN: Target(must=10, aim=30)},
    )


def _random(name: str, title: str, workload: str, target: Target, fastest: Target | None) -> Row:
    needs = (STORED[workload],)
    return Row(
        name,
        title,
        "examples/s",
        {
            OURS: Contender(array_record.random_reads(workload), needs),
            TFDS: Contender(array_record.random_reads_tfds(workload), needs),
            f"{WHEEL}, bytes": Contender(array_record.random_records(workload), needs, yardstick=True),
        },
        {TFDS: target, **({} if fastest is None else {f"{WHEEL}, bytes": fastest})},
    )


ROWS = (
    Row(
        "build_tornet",
        "build TorNet's files to ArrayRecord",
        "examples/s",
        {
            OURS: Contender(tornet.build, SOURCES["tornet"].needs),
            TFDS_BUILD: Contender(tfds.build("tornet", share=0.1, file_format="array_record"), SOURCES["tornet"].needs),
        },
        {TFDS_BUILD: Target(must=10, aim=20)},
        repetitions=3,
    ),
    Row(
        "load_w5",
        "epoch of W5, ArrayRecord, batches of 8",
        "examples/s",
        {
            OURS: Contender(array_record.load("w5"), (STORED["w5"],)),
            "TFDS + torch DataLoader": Contender(array_record.load_torch, (STORED["w5"],)),
            "TFDS + Grain": Contender(array_record.load_grain, (STORED["w5"],)),
        },
        {FASTEST: Target(must=2, aim=2.8)},
        repetitions=5,
    ),
    _random(
        "random_array_record",
        "random single examples of ArrayRecord, 200 B",
        "rows",
        Target(must=50, aim=100),
        Target(aim=1.5),
    ),
    _random(
        "random_array_record_large",
        "random single examples of ArrayRecord, 60 to 100 KB",
        "files",
        Target(must=1.5, aim=3),
        None,
    ),
    _epoch("load_w1_array_record", "epoch of W1, ArrayRecord", shuffle=False),
    _epoch("load_w1_array_record_shuffled", "epoch of W1, ArrayRecord, shuffled", shuffle=True),
    Row(
        "write_w1_array_record",
        "encode + write W1 as ArrayRecord",
        "examples/s",
        {
            OURS: Contender(array_record.write, (GENERATED["w1"],)),
            f"{WHEEL}, bytes": Contender(array_record.write_records, (GENERATED["w1"],)),
        },
        {f"{WHEEL}, bytes": Target(must=2, aim=5)},
    ),
    Row(
        "convert_w1",
        "convert W1, TFRecord to ArrayRecord",
        "GB/s",
        {
            OURS: Contender(array_record.convert, (DATASET["w1"],)),
            "a copy of the files": Contender(array_record.copy, (DATASET["w1"],), yardstick=True),
        },
        repetitions=5,
    ),
)
