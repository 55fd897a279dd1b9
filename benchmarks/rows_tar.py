"""The rows of tar shards: loaded where they are, and turned into TFRecord files."""

from __future__ import annotations

from functools import partial

from benchmarks.contenders import tars
from benchmarks.contenders.webdataset import W3
from benchmarks.rows import OURS, Contender, Row, Target

WEBDATASET, TARFILE = "webdataset, 2 workers", "tarfile and tf.train.Example"

ROWS = (
    Row(
        "load_tar",
        "epoch of W3 from tars, as bytes",
        "examples/s",
        {OURS: Contender(tars.load_ours, (W3,)), WEBDATASET: Contender(tars.load_webdataset, (W3,))},
        {WEBDATASET: Target(must=2, aim=4)},
    ),
    Row(
        "build_tar",
        "build W3 from tars",
        "examples/s",
        {OURS: Contender(tars.build_ours, (W3,)), TARFILE: Contender(tars.build_tensorflow, (W3,))},
        {TARFILE: Target(must=4, aim=8)},
        repetitions=5,
    ),
    Row(
        "build_tar_disk",
        "build W3 from tars, onto the disk",
        "examples/s",
        {
            OURS: Contender(partial(tars.build_ours, sync=True), (W3,)),
            f"{TARFILE}, then synced": Contender(partial(tars.build_tensorflow, sync=True), (W3,)),
        },
        repetitions=5,
    ),
)
