"""The rows of object stores: a real S3 on loopback, which shares the processor with whoever reads."""

from __future__ import annotations

from benchmarks.contenders import stores
from benchmarks.contenders.penstock_load import DATASET
from benchmarks.rows import OURS, Contender, Row, Target

MDS, LITDATA, S3FS = "MDS, 2 workers", "LitData, 2 workers", "s3fs"

ROWS = (
    Row(
        "load_s3",
        "epoch of W3 from an S3, as bytes, with a cold cache",
        "examples/s",
        {
            OURS: Contender(stores.load_ours, (DATASET["w3"],)),
            MDS: Contender(stores.load_mds, (stores.MDS_W3,), role="peers"),
            LITDATA: Contender(stores.load_litdata, (stores.LITDATA_W3,), role="peers"),
        },
        {MDS: Target(must=1.2, aim=2), LITDATA: Target(must=1.2, aim=2)},
        repetitions=5,
    ),
    Row(
        "read_s3",
        "single reads of 100 KB from an S3, 64 in flight",
        "reads/s",
        {
            OURS: Contender(stores.read_ours, (stores.RECORDS,)),
            S3FS: Contender(stores.read_s3fs, (stores.RECORDS,)),
        },
        {S3FS: Target(must=2, aim=5)},
    ),
)
