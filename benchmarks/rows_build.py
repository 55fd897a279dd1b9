"""The rows of building: from files, tables, generators and tensors to shards; workers; memory."""

from __future__ import annotations

from benchmarks.contenders import limits, litdata, mds, penstock_build, tensorflow, tfds, webdataset
from benchmarks.rows import FASTEST, OURS, Contender, Limit, Row, Target
from benchmarks.sources import SOURCES

TFDS, TF_IO, WEBDATASET, MDS, LITDATA = "TFDS", "tf.io", "webdataset", "MDS", "LitData"
REPETITIONS = 5  # a build takes seconds
BUDGET = 512  # MB that a build may take


def _contenders(workload: str, *, share: float = 1, processes: int = 2) -> dict[str, Contender]:
    """Ours, which builds everything, and its peers with a share of the examples."""
    needs = SOURCES[workload].needs
    part = "" if share == 1 else f", 1/{1 / share:.0f} of it"
    return {
        OURS: Contender(penstock_build.build(workload), needs),
        TFDS + part: Contender(tfds.build(workload, share=share), needs),
        TF_IO + part: Contender(tensorflow.build(workload, share=share, processes=processes), needs),
        WEBDATASET + part: Contender(webdataset.build(workload, share=share, processes=processes), needs),
        MDS + part: Contender(mds.build(workload, share=share, processes=processes), needs, role="peers"),
        LITDATA + part: Contender(litdata.build(workload, share=share), needs, role="peers"),
    }


def _tensors() -> tuple[dict[str, Contender], dict[str, Target]]:
    """Contenders that compress with zlib, as we do; and without a target those with zstd, another bargain."""
    share, part, needs = 0.1, ", 1/10 of it", SOURCES["w5"].needs
    zlib = _contenders("w5", share=share)
    del zlib[LITDATA + part], zlib[MDS + part]
    zlib[f"{MDS}, gzip{part}"] = Contender(mds.build("w5", share=share, compression="gz"), needs, role="peers")
    zstd = {
        f"{MDS}, zstd{part}": mds.build("w5", share=share, compression="zstd"),
        f"{LITDATA}, zstd{part}": litdata.build("w5", share=share),
    }
    others = {name: Contender(build, needs, role="peers", yardstick=True) for name, build in zstd.items()}
    return zlib | others, {FASTEST: Target(must=10, aim=20)}


def _memory(workload: str, title: str) -> Row:
    return Row(
        f"memory_build_{workload}",
        f"peak memory of a build, {title}",
        "MB",
        {OURS: Contender(penstock_build.memory(workload, BUDGET * 1_000_000), SOURCES[workload].needs)},
        limit=Limit(must=BUDGET),
        fresh=True,
        repetitions=3,
    )


ROWS = (
    Row(
        "build_images",
        "build W3 from its files",
        "examples/s",
        {
            **_contenders("images"),
            OURS: Contender(penstock_build.build("images", sync=False), SOURCES["images"].needs),
            "a copy of the files": Contender(limits.copy_files, SOURCES["images"].needs, yardstick=True),
        },
        {FASTEST: Target(must=1.2), "a copy of the files": Target(aim=1)},
        repetitions=REPETITIONS,
    ),
    Row(
        "build_images_disk",
        "build W3 from its files, onto the disk",
        "examples/s",
        {
            OURS: Contender(penstock_build.build("images"), SOURCES["images"].needs),
            f"{TF_IO}, then synced": Contender(tensorflow.build("images", sync=True), SOURCES["images"].needs),
        },
        repetitions=REPETITIONS,
    ),
    Row(
        "build_csv",
        "build 40 columns from CSV",
        "examples/s",
        _contenders("csv", share=0.05),
        {f"{TFDS}, 1/20 of it": Target(must=20, aim=50)},
        repetitions=REPETITIONS,
    ),
    Row(
        "build_w1",
        "build W1 from a generator",
        "examples/s",
        _contenders("w1", share=0.2, processes=1),
        {f"{TFDS}, 1/5 of it": Target(must=12, aim=30), f"{TF_IO}, 1/5 of it": Target(must=3)},
        repetitions=REPETITIONS,
    ),
    Row(
        "build_w5",
        "build W5, tensors, zlib",
        "examples/s",
        *_tensors(),
        repetitions=REPETITIONS,
    ),
    Row(
        "build_workers",
        "build from images decoded by Pillow",
        "examples/s",
        {
            OURS: Contender(penstock_build.build("thumbnails"), SOURCES["thumbnails"].needs),
            f"{OURS}, 1 worker": Contender(
                penstock_build.build("thumbnails", workers=1), SOURCES["thumbnails"].needs, yardstick=True
            ),
        },
        {f"{OURS}, 1 worker": Target(must=1.7)},
        repetitions=REPETITIONS,
    ),
    _memory("images", "W3"),
    _memory("csv", "CSV"),
    _memory("w1", "W1"),
    _memory("w5", "W5"),
)
