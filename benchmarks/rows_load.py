"""The rows of loading: epochs of W1 to W4 in order and shuffled, and single examples."""

from __future__ import annotations

from benchmarks.contenders import (
    bagz,
    dali,
    grain,
    huggingface,
    limits,
    litdata,
    mds,
    penstock_load,
    tensorflow,
    tfds,
    torch,
    webdataset,
)
from benchmarks.data import GENERATED
from benchmarks.rows import OURS, Contender, Limit, Row, Target

try:
    from penstock._core import JPEG_DECODER
except ImportError:  # the peers' environment, where nothing is compared
    JPEG_DECODER = ""

TF_DATA, BAGZ, ARROW, TORCH = "tf.data", "bagz", "HF datasets", "torch DataLoader"
GRAIN, MDS, LITDATA, WEBDATASET = (f"{name}, 1/10 of it" for name in ("Grain", "MDS", "LitData", "webdataset"))
MEMORY_MAP = "NumPy memory map"
IN_ORDER, NUMPY, SMALLER = f"{OURS}, in order", f"{OURS}, NumPy", f"{OURS}, stored with max_side=256"
LARGE = 4096  # examples in a batch for a framework
BUDGET = 256  # MB that an epoch may take
SHARD, OF_OURS = tensorflow.SHARD, penstock_load.DATASET
GENERATED_W1 = (GENERATED["w1"],)
# DALI decodes with libjpeg-turbo, whose speed is its assembler's: to compile that takes nasm.
DALI = Target(must=1, aim=1.3) if JPEG_DECODER == "libjpeg-turbo" else Target(aim=1)


def _w1(*, shuffle: bool) -> dict[str, Contender]:
    """The contenders that know both orders."""
    return {
        OURS: Contender(penstock_load.load("w1", shuffle=shuffle), (OF_OURS["w1"],)),
        TF_DATA: Contender(tensorflow.load_shuffled if shuffle else tensorflow.decode("w1"), (SHARD["w1"],)),
        BAGZ: Contender(bagz.load_w1(shuffle=shuffle), (bagz.W1,)),
        GRAIN: Contender(grain.load(shuffle=shuffle), (grain.W1,)),
        ARROW: Contender(huggingface.load("w1", shuffle=shuffle), (huggingface.DATASET["w1"],), role="peers"),
        TORCH: Contender(torch.load("w1", shuffle=shuffle), GENERATED_W1),
        MDS: Contender(mds.load(shuffle=shuffle), (mds.W1,), role="peers"),
        LITDATA: Contender(litdata.load(shuffle=shuffle), (litdata.W1,), role="peers"),
        MEMORY_MAP: Contender(limits.memory_map(shuffle=shuffle), GENERATED_W1, yardstick=True),
    }


def _in_order(workload: str) -> dict[str, Contender]:
    return {IN_ORDER: Contender(penstock_load.load(workload), (OF_OURS[workload],), yardstick=True)}


def _framework(name: str, title: str) -> Row:
    """What a framework makes of our batches, beside the batches themselves.

    Large ones: to hand over three arrays alone costs TensorFlow and JAX more than a batch of 256 costs us.
    """
    return Row(
        f"load_w1_{name}",
        f"epoch of W1 in {title}, batches of {LARGE}",
        "examples/s",
        {
            OURS: Contender(penstock_load.load_into(name, batch=LARGE, epochs=10), (OF_OURS["w1"],)),
            NUMPY: Contender(penstock_load.load_into("", batch=LARGE, epochs=10), (OF_OURS["w1"],), yardstick=True),
        },
        {NUMPY: Target(must=0.8, aim=0.95)},
    )


ROWS = (
    Row(
        "load_w1",
        "epoch of W1",
        "examples/s",
        {**_w1(shuffle=False), WEBDATASET: Contender(webdataset.load("w1"), (webdataset.W1,))},
        {
            TF_DATA: Target(must=6),
            GRAIN: Target(must=10),
            LITDATA: Target(must=10),
            MDS: Target(must=10),
            BAGZ: Target(aim=1),
        },
        repetitions=5,
    ),
    Row(
        "load_w1_shuffled",
        "epoch of W1, shuffled",
        "examples/s",
        _w1(shuffle=True) | _in_order("w1"),
        {BAGZ: Target(must=2, aim=4), IN_ORDER: Target(must=1 / 2.5)},
        repetitions=5,
    ),
    _framework("torch", "PyTorch"),
    _framework("tf", "TensorFlow"),
    _framework("jax", "JAX"),
    Row(
        "load_w2",
        "epoch of W2",
        "examples/s",
        {
            OURS: Contender(penstock_load.load("w2"), (OF_OURS["w2"],)),
            TF_DATA: Contender(tensorflow.decode("w2"), (SHARD["w2"],)),
            ARROW: Contender(huggingface.load("w2"), (huggingface.DATASET["w2"],), role="peers"),
        },
        {TF_DATA: Target(must=4), ARROW: Target(aim=1)},
    ),
    Row(
        "load_w3",
        "epoch of W3, as bytes",
        "examples/s",
        {
            OURS: Contender(penstock_load.load("w3"), (OF_OURS["w3"],)),
            TF_DATA: Contender(tensorflow.decode("w3"), (SHARD["w3"],)),
            BAGZ: Contender(bagz.load_w3, (bagz.W3,)),
            ARROW: Contender(huggingface.load("w3"), (huggingface.DATASET["w3"],), role="peers"),
            "webdataset": Contender(webdataset.load("w3"), (webdataset.W3,)),
        },
        {TF_DATA: Target(must=2.2), BAGZ: Target(aim=1), ARROW: Target(aim=1)},
    ),
    Row(
        "load_w3_shuffled",
        "epoch of W3, as bytes, shuffled",
        "examples/s",
        {OURS: Contender(penstock_load.load("w3", shuffle=True), (OF_OURS["w3"],)), **_in_order("w3")},
        {IN_ORDER: Target(must=1 / 1.3)},
    ),
    Row(
        "load_w4",
        "epoch of W4, decoded to 224 x 224",
        "examples/s",
        {
            OURS: Contender(penstock_load.load("w4", stored=OF_OURS["w3"]), (OF_OURS["w3"],)),
            SMALLER: Contender(
                penstock_load.load("w4", stored=penstock_load.SMALL), (penstock_load.SMALL,), yardstick=True
            ),
            TF_DATA: Contender(tensorflow.load_images, (SHARD["w3"],)),
            "DALI, CPU": Contender(dali.load_images, (GENERATED["w3"],), role="peers"),
            TORCH: Contender(torch.load("w4"), (GENERATED["w3"],)),
        },
        {TF_DATA: Target(must=0.9), "DALI, CPU": DALI},
        repetitions=5,
    ),
    Row(
        "load_random_w1",
        "random single examples of a dataset",
        "examples/s",
        {
            OURS: Contender(penstock_load.random_reads, (OF_OURS["w1"],)),
            "bagz + NumPy views": Contender(bagz.random_reads, (bagz.W1,)),
            "TFDS, ArrayRecord": Contender(tfds.random_reads, (tfds.W1,)),
        },
        {"bagz + NumPy views": Target(must=1, aim=3)},
    ),
    Row(
        "load_first",
        "from nothing to a batch of 10 M records",
        "s",
        {OURS: Contender(penstock_load.first_batch, (penstock_load.MANY_RECORDS,))},
        limit=Limit(must=0.5, aim=0.25),
        fresh=True,
    ),
    Row(
        "memory_load",
        "peak memory of a shuffled epoch, 20 times its budget of data",
        "MB",
        {OURS: Contender(penstock_load.epoch_memory(BUDGET * 1_000_000, 20), (SHARD["w3"],))},
        limit=Limit(must=BUDGET),
        fresh=True,
        repetitions=3,
    ),
)
