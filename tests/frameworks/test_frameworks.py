"""The same loader in torch, TensorFlow, JAX, Grain and Keras: the same examples in the same order."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

ROWS = 103


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    rng = np.random.default_rng(5)
    rows = [
        {
            "x": rng.normal(size=4).astype(np.float32),
            "tokens": rng.integers(0, 100, number % 5),
            "name": f"row {number}",
            "data": bytes([number]),
            "label": number,
            "score": None if number % 3 == 0 else float(number),
        }
        for number in range(ROWS)
    ]
    path = tmp_path_factory.mktemp("data") / "toy"
    ps.build(rows, path, shards=3, workers=1)
    return ps.load(path)


def plain(dataset: ps.Dataset) -> ps.Loader:
    return dataset["train"].select("x", "label")


def order_hash(batches: Any, label: Any = lambda batch: batch["label"]) -> str:
    labels = np.concatenate([np.asarray(label(batch)) for batch in batches])
    return hashlib.blake2b(labels.astype(np.int64).tobytes(), digest_size=8).hexdigest()


def mixed(dataset: ps.Dataset, threads: int = 2) -> ps.Loader:
    """A shuffled, mixed, sharded epoch."""
    first, second = plain(dataset).take(60).shuffle(seed=1).repeat(), plain(dataset).skip(60).shuffle(seed=2).repeat()
    return ps.mix({first: 0.7, second: 0.3}, seed=3).take(1000).shard(1, 2).batch(32).prefetch(2, threads=threads)


def test_the_order_of_an_epoch_is_the_same_everywhere(dataset: ps.Dataset) -> None:
    expected = order_hash(mixed(dataset))
    for threads in (1, 2, 5):
        assert order_hash(mixed(dataset, threads)) == expected
    assert order_hash(mixed(dataset).to_torch()) == expected
    assert order_hash(mixed(dataset).to_tf()) == expected
    assert order_hash(mixed(dataset).to_jax()) == expected
    assert order_hash(mixed(dataset).epoch(1)) != expected


# torch


def test_torch_tensors_are_the_core_s_memory(dataset: ps.Dataset) -> None:
    import torch

    (batch,) = dataset["train"].select("x", "tokens", "name", "data", "label").batch(ROWS).to_torch()
    (expected,) = dataset["train"].select("x", "tokens", "name", "data", "label").batch(ROWS)
    assert torch.equal(batch["x"], torch.from_numpy(expected["x"]))
    assert batch["label"].dtype == torch.int64
    assert batch["tokens"].is_nested
    assert [row.tolist() for row in batch["tokens"].unbind()] == expected["tokens"].to_list()
    assert batch["name"] == expected["name"].to_list()
    assert batch["data"] == expected["data"].to_list()


def test_torch_shares_memory() -> None:
    from penstock.frameworks.torch import tensors

    array = np.zeros(3, np.float32)
    tensors({"x": array})["x"][1] = 5
    assert array[1] == 5


def test_torch_says_what_to_do_with_missing_values(dataset: ps.Dataset) -> None:
    with pytest.raises(ps.SchemaError, match="optional field - at score"):
        next(iter(dataset["train"].batch(8).to_torch()))


def test_torch_data_loader_takes_a_split_as_it_is(dataset: ps.Dataset) -> None:
    from torch.utils.data import DataLoader

    split = dataset["train"]
    found = [row["label"] for rows in DataLoader(split, batch_size=10, collate_fn=list) for row in rows]
    assert found == [row["label"] for row in split]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_read_every_example_once_and_shuffle_anew_each_epoch(dataset: ps.Dataset, workers: int) -> None:
    from torch.utils.data import DataLoader

    data = plain(dataset).shuffle(seed=9).batch(8).to_torch()
    loader = DataLoader(data, batch_size=None, num_workers=workers)
    everything = sorted(row["label"] for row in plain(dataset))
    epochs = [[label for batch in loader for label in batch["label"].tolist()] for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [everything, everything]
    assert epochs[0] != epochs[1]


def test_torch_state_goes_on_exactly(dataset: ps.Dataset) -> None:
    make = lambda: plain(dataset).shuffle(seed=4).batch(7).to_torch()  # noqa: E731
    whole = [batch["label"].tolist() for batch in make()]
    data = make()
    iterator = iter(data)
    taken = [next(iterator)["label"].tolist() for _ in range(5)]
    state = pickle.loads(pickle.dumps(data.state_dict()))  # noqa: S301
    again = make()
    again.load_state_dict(state)
    assert taken + [batch["label"].tolist() for batch in again] == whole
    assert [batch["label"].tolist() for batch in again] != whole  # the next epoch
    resumed = plain(dataset).shuffle(seed=4).batch(7).resume(state).to_torch()
    assert taken + [batch["label"].tolist() for batch in resumed] == whole


RANK = """
import sys, torch, torch.distributed as dist, penstock as ps
rank, world, address, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
data = ps.load(path)["train"].select("label").shuffle(seed=3).batch(8).to_torch()
print(*[label for batch in data for label in batch["label"].tolist()])
dist.destroy_process_group()
"""


def test_ranks_of_torch_distributed_share_the_examples(dataset: ps.Dataset, tmp_path: Path) -> None:
    address = f"file://{tmp_path / 'meeting'}"
    command = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen([*command, str(rank), "2", address, str(dataset.path)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    found = [rank.communicate(timeout=100)[0].split() for rank in ranks]
    assert all(found)
    assert sorted(int(label) for labels in found for label in labels) == list(range(ROWS))


# TensorFlow


def test_tf_has_the_right_spec_and_values(dataset: ps.Dataset) -> None:
    import tensorflow as tf

    data = dataset["train"].batch(16).to_tf()
    spec = data.element_spec
    assert spec["x"] == tf.TensorSpec([None, 4], tf.float32)
    assert spec["label"] == tf.TensorSpec([None], tf.int64)
    assert spec["name"] == tf.TensorSpec([None], tf.string)
    assert spec["tokens"] == tf.RaggedTensorSpec([None, None], tf.int64, 1)
    assert isinstance(spec["score"], tf.SparseTensorSpec)
    for found, expected in zip(data, dataset["train"].batch(16), strict=True):
        np.testing.assert_array_equal(found["x"].numpy(), expected["x"])
        assert found["tokens"].to_list() == expected["tokens"].to_list()
        assert [name.decode() for name in found["name"].numpy()] == expected["name"].to_list()
        dense = tf.sparse.to_dense(found["score"], default_value=-1).numpy()
        np.testing.assert_array_equal(dense, expected["score"].filled(-1))


def test_tf_cuts_large_chunks_into_the_same_batches(dataset: ps.Dataset) -> None:
    loader = plain(dataset).shuffle(seed=1).batch(8, drop_remainder=True)
    assert [batch["label"].numpy().tolist() for batch in loader.to_tf()] == [
        batch["label"].tolist() for batch in loader.epoch(0)
    ]
    assert loader.to_tf().element_spec["label"].shape == [8]


def test_tf_shuffles_anew_each_epoch(dataset: ps.Dataset) -> None:
    data = plain(dataset).shuffle(seed=1).batch(8).to_tf()
    first, second = ([batch["label"].numpy().tolist() for batch in data] for _ in range(2))
    assert first != second


def test_tf_by_itself_gives_the_same_examples(dataset: ps.Dataset) -> None:
    loader = dataset["train[10:90]"].select("x", "tokens", "name", "data", "label").batch(16)
    ours, graph = loader.to_tf(), loader.to_tf(graph=True)
    assert graph.element_spec.keys() == ours.element_spec.keys()
    for a, b in zip(ours, graph, strict=True):
        for name in ("x", "name", "data", "label"):
            np.testing.assert_array_equal(a[name].numpy(), b[name].numpy())
        assert a["tokens"].to_list() == b["tokens"].to_list()
    shuffled = dataset["train"].select("label").shuffle(seed=2).shard(0, 2).to_tf(graph=True)
    other = dataset["train"].select("label").shuffle(seed=2).shard(1, 2).to_tf(graph=True)
    assert len({int(e["label"]) for e in shuffled} | {int(e["label"]) for e in other}) <= ROWS
    mapped = loader.to_tf(graph=True).map(lambda batch: batch["x"] * 2)
    np.testing.assert_allclose(next(iter(mapped)).numpy(), dataset["train"][10:26]["x"] * 2)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_tf_by_itself_interleaves_files(tmp_path: Path, compression: str | None) -> None:
    format = ps.TFRecord(compression=compression)
    ps.build({"x": np.arange(9)}, tmp_path / "data", order="source", shards=3, format=format, workers=1)
    train = ps.load(tmp_path / "data")["train"]

    def xs(*args: Any, part: ps.Split = train, **options: Any) -> list[int]:
        return [int(example["x"]) for example in part.to_tf(graph=ps.Interleave(*args, **options))]

    assert xs(1) == list(range(9))
    assert xs(3) == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert xs(3, 2) == [0, 1, 3, 4, 6, 7, 2, 5, 8]
    assert xs(1, sort=lambda files: files[::-1]) == [6, 7, 8, 3, 4, 5, 0, 1, 2]
    assert xs(1, part=ps.load(tmp_path / "data")["train[1:5]"]) == [1, 2, 3, 4]
    orders = {tuple(xs(1, seed=seed)) for seed in range(8)}
    assert len(orders) > 1
    assert all(sorted(order) == list(range(9)) and order[1] == order[0] + 1 for order in orders)
    (batch,) = train.batch(9).to_tf(graph=ps.Interleave(3))
    assert batch["x"].numpy().tolist() == xs(3)
    once = train.to_tf(graph=ps.Interleave(1, seed=3, reshuffle=False))
    assert [int(e["x"]) for e in once] == [int(e["x"]) for e in once]
    with pytest.raises(ps.ArgumentError, match=r"expected cycle to be 1 or more, or -1, got 0 - at Interleave"):
        ps.Interleave(0)
    with pytest.raises(ps.ArgumentError, match=r"expected block to be 1 or more, got '2' - at Interleave"):
        ps.Interleave(block="2")  # type: ignore[arg-type]


def test_tf_by_itself_pads_batches(dataset: ps.Dataset) -> None:
    loader = dataset["train[:50]"].select("tokens", "label").batch(16, pad=0)
    for found, expected in zip(loader.to_tf(graph=True), loader, strict=True):
        np.testing.assert_array_equal(found["tokens"], expected["tokens"])
        np.testing.assert_array_equal(found["label"], expected["label"])
    with pytest.raises(ps.ArgumentError, match=r"expected pad=0, got -1 - at to_tf\(graph=True\)"):
        dataset["train"].select("tokens").batch(4, pad=-1).to_tf(graph=True)


def test_tf_by_itself_decodes_the_images_of_examples(tmp_path: Path) -> None:
    from PIL import Image

    rows = []
    for number, mode in enumerate(["RGB", "L"]):
        buffer = io.BytesIO()
        Image.new(mode, (5, 4 + number), 90).save(buffer, "PNG")
        rows.append({"image": buffer.getvalue(), "mask": buffer.getvalue(), "n": number})
    mask = ps.Field(dtype="bytes", kind="image", decoded="uint8[?,?,1]")
    schema = {"image": ps.Field(dtype="bytes", kind="image"), "mask": mask, "n": "int64"}
    ps.build(rows, tmp_path / "data", schema=schema, order="source", workers=1)
    train = ps.load(tmp_path / "data")["train"]
    graph = train.to_tf(graph=True)
    assert graph.element_spec["image"].shape.as_list() == [None, None, 3]
    for found, expected in zip(graph, train, strict=True):
        np.testing.assert_array_equal(found["image"], expected["image"])
        assert found["mask"].shape == expected["mask"].shape
    raw = ps.load(tmp_path / "data", decode=False)["train"].to_tf(graph=True)
    assert [example["image"].numpy() for example in raw] == [row["image"] for row in rows]
    (batch,) = train.batch(2).to_tf(graph=True)
    assert batch["image"].numpy().tolist() == [row["image"] for row in rows]
    small = ps.load(tmp_path / "data", decode={"image": ps.Image(size=(2, 2))})["train"]
    with pytest.raises(ps.SchemaError, match=r"expected images as they are, got Image\(size=.* - at image. Resize on"):
        small.to_tf(graph=True)


def test_tf_by_itself_refuses_what_it_has_no_form_for(dataset: ps.Dataset) -> None:
    with pytest.raises(ps.ArgumentError, match=r"Map on the tf\.data\.Dataset"):
        plain(dataset).map(lambda example: example).batch(4).to_tf(graph=True)
    with pytest.raises(ps.SchemaError, match="score"):
        dataset["train"].batch(4).to_tf(graph=True)


def test_tf_takes_images_of_any_size(tmp_path: Path) -> None:
    from PIL import Image

    for number, size in enumerate([(5, 4), (7, 9)]):
        folder = tmp_path / "photos" / "cat"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (number * 90, 3, 4)).save(folder / f"{number}.png")
    ps.build(ps.image_folder(tmp_path / "photos"), tmp_path / "data", order="source", workers=1)
    loader = ps.load(tmp_path / "data")["train"].batch(2)
    (found,) = loader.to_tf()
    (expected,) = loader.epoch(0)
    for image, array in zip(found["image"], expected["image"], strict=True):
        np.testing.assert_array_equal(image.to_tensor().numpy(), array)


# JAX


def test_jax_arrays_are_on_the_device(dataset: ps.Dataset) -> None:
    import jax

    batches = list(plain(dataset).shuffle(seed=1).batch(16).to_jax())
    assert all(isinstance(batch["x"], jax.Array) for batch in batches)
    for found, expected in zip(batches, plain(dataset).shuffle(seed=1).batch(16), strict=True):
        np.testing.assert_array_equal(np.asarray(found["x"]), expected["x"])


def test_jax_takes_a_sharding_and_keeps_state(dataset: ps.Dataset) -> None:
    import jax

    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    loader = plain(dataset).shuffle(seed=1).batch(16)
    iterator = iter(loader.to_jax(sharding=sharding))
    first = next(iterator)
    assert first["x"].sharding == sharding
    state = iterator.state()
    rest = [np.asarray(batch["label"]).tolist() for batch in iterator]
    assert [batch["label"].tolist() for batch in loader.resume(state)] == rest


def test_jax_never_cuts_integers_in_silence(tmp_path: Path) -> None:
    numbers = np.arange(10)
    numbers[7] = 2**40
    ps.build({"n": numbers, "size": np.arange(10, dtype=np.uint64)}, tmp_path / "data", workers=1)
    split = ps.load(tmp_path / "data")["train"]
    before = [int(example["n"]) for example in split]
    before = before[: before.index(2**40)]
    for loader in (split.batch(1), split.map(dict).batch(1), split.batch(1, pad=0)):
        found = iter(loader.to_jax())
        for number in before:
            batch = next(found)
            assert (int(batch["n"][0]), str(batch["n"].dtype), str(batch["size"].dtype)) == (number, "int32", "uint32")
        with pytest.raises(ps.SchemaError, match=r"got int64 values beyond them - at n.*jax_enable_x64"):
            next(found)
    with pytest.raises(ps.SchemaError, match=rf"tfrecord-00000-of-00001, record {len(before)}, key '7'"):
        list(split.batch(1).to_jax())


def test_jax_has_64_bits_where_they_are_allowed_by_then(tmp_path: Path) -> None:
    import jax

    ps.build([{"n": 2**40}], tmp_path / "data", workers=1)
    data = ps.load(tmp_path / "data")["train"].batch(1).to_jax()
    jax.config.update("jax_enable_x64", True)
    try:
        assert int(next(iter(data))["n"][0]) == 2**40
    finally:
        jax.config.update("jax_enable_x64", False)


def test_jax_takes_large_columns_over_without_a_copy(tmp_path: Path) -> None:
    import jax

    ps.build({"x": np.ones((64, 4096), np.float32)}, tmp_path / "data", workers=1)
    loader = ps.load(tmp_path / "data")["train"].batch(32)
    for batch in loader:
        assert batch["x"].ctypes.data % 64 == 0
        assert jax.device_put(batch["x"]).unsafe_buffer_pointer() == batch["x"].ctypes.data


def test_jax_says_what_to_do_with_ragged_columns(dataset: ps.Dataset) -> None:
    with pytest.raises(ps.SchemaError, match=r"Pad it"):
        next(iter(dataset["train"].select("tokens").batch(4).to_jax()))
    (batch, *_) = dataset["train"].select("tokens").batch(4, pad=0).to_jax()
    assert batch["tokens"].ndim == 2


# Grain


def test_grain_takes_a_split_as_it_is(dataset: ps.Dataset) -> None:
    import grain

    split = plain(dataset)
    source = dataset["train"]
    labels = [int(row["label"]) for row in source]
    shuffled = grain.MapDataset.source(source).shuffle(seed=3).map(lambda row: int(row["label"]))
    assert sorted(shuffled[position] for position in range(len(shuffled))) == sorted(labels)
    assert len(pickle.dumps(source)) < 5000
    del split


# Keras

FIT = """
import sys, numpy as np, penstock as ps, keras
path, kind = sys.argv[1:]
loader = ps.load(path)["train"].select("x", "label").shuffle(seed=1).batch(16)
pairs = loader.map(lambda batch: (batch["x"], (batch["label"] % 2).astype("float32")), threads=0)
if kind == "torch":
    import torch
    data = torch.utils.data.DataLoader(pairs.to_torch(), batch_size=None)
elif kind == "tensorflow":
    data = pairs.to_tf()
else:
    data = pairs.to_jax()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile(loss="binary_crossentropy", optimizer="sgd")
history = model.fit((pair for pair in data) if kind == "jax" else data, epochs=1 if kind == "jax" else 2, verbose=0)
assert np.isfinite(history.history["loss"]).all()
print("trained", len(history.history["loss"]))
"""


@pytest.mark.parametrize("kind", ["torch", "tensorflow", "jax"])
def test_keras_fits_a_model(dataset: ps.Dataset, kind: str) -> None:
    environment = os.environ | {"KERAS_BACKEND": kind, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", FIT, str(dataset.path), kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("trained")


@pytest.mark.parametrize(("package", "method"), [("torch", "to_torch"), ("tensorflow", "to_tf"), ("jax", "to_jax")])
def test_an_absent_framework_is_one_sentence(dataset: ps.Dataset, package: str, method: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
import penstock as ps
try:
    ps.load({str(dataset.path)!r})["train"].batch(4).{method}()
except ps.MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install" in done.stdout
    assert package in done.stdout


def test_tensorflow_parses_single_records_with_defaults() -> None:
    tf = pytest.importorskip("tensorflow")
    from penstock.frameworks.tensorflow_graph import record_parser

    schema = ps.Schema(
        {
            "count": ps.Field(dtype="int32", default=7),
            "name": ps.Field(dtype="str", default="none"),
            "fixed": ps.Field(dtype="float32", shape=(2,), default=[1, 2]),
            "packed": ps.Field(dtype="int32", shape=(None,), encoding="bytes", default=[4, 5]),
            "rows": ps.Field(dtype="float32", shape=(None, 2), encoding="bytes"),
            "listed": "int64[?]",
        }
    )
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    whole = {"count": 1, "name": "a", "fixed": [3, 4], "packed": [1, 2, 3], "rows": rows, "listed": [8, 9]}
    sparse = {"rows": rows[:0], "listed": []}
    codec = ps.Codec(schema)
    records = tf.data.Dataset.from_tensor_slices([bytes(record) for record in codec.encode_examples([whole, sparse])])
    dataset = records.map(record_parser(schema))
    assert dataset.element_spec["rows"] == tf.TensorSpec([None, 2], tf.float32)
    found = list(dataset.as_numpy_iterator())
    for item, example in zip(
        found, [codec.decode_example(record) for record in records.as_numpy_iterator()], strict=True
    ):
        for name, value in example.items():
            expected = value.encode() if isinstance(value, str) else value
            np.testing.assert_array_equal(item[name], expected)
    assert found[1]["packed"].tolist() == [4, 5]
    with pytest.raises(ps.SchemaError, match="expected a plain type"):
        record_parser(ps.Schema({"x": "int64?"}))


def test_images_of_one_size_have_it_in_tensorflow(tmp_path: Path) -> None:
    from PIL import Image

    rows = []
    for number in range(6):
        buffer = io.BytesIO()
        Image.new("RGB", (5 + number, 4), 90).save(buffer, "PNG")
        rows.append({"image": buffer.getvalue(), "n": number})
    ps.build(rows, tmp_path / "data", schema={"image": ps.Field(dtype="bytes", kind="image"), "n": "int64"})
    train = ps.load(tmp_path / "data")["train"]
    sized = train.decode(image=ps.Image(size=(8, 6)))
    assert sized.batch(4).to_tf().element_spec["image"].shape.as_list() == [None, 8, 6, 3]
    assert sized.to_tf().element_spec["image"].shape.as_list() == [8, 6, 3]
    assert train.to_tf().element_spec["image"].shape.as_list() == [None, None, None]


def test_a_dataset_of_tensorflow_is_a_source(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    numbers = tf.data.Dataset.range(5).map(lambda n: {"n": n})
    built = ps.build(numbers, tmp_path / "data", order="source", workers=1)
    assert [example["n"] for example in built["train"]] == list(range(5))
