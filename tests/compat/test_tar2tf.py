"""TAR2TF's documented code, with another import line: against the real AIStore, an S3, and a folder."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from services import AIStore, FaultProxy
from tests.support.tar_files import write_tar

from penstock import SchemaError, StorageError
from penstock.compat.tar2tf import AisDataset, default_record_parser, default_record_to_example, default_record_to_pair
from penstock.storage.open import open_store

tf: Any = pytest.importorskip("tensorflow")

BATCH_SIZE = 5


def photo(number: int, mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (40 + number % 3, 30, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, "jpeg")
    return out.getvalue()


def write_photos(folder: Path) -> None:
    """train-0.tar.gz to train-7.tar.gz: three samples each, with labels from 0 to 23."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(8):
        members = []
        for number in range(3 * shard, 3 * shard + 3):
            members += [(f"d/s{number}.jpg", photo(number)), (f"d/s{number}.cls", f"{number}\n".encode())]
        write_tar(folder / f"train-{shard}.tar.gz", members, mode="w:gz")


@pytest.fixture(params=["aistore", "s3", "folder"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A bucket and the address of its proxy, or what stands in its place."""
    write_photos(tmp_path / "photos")
    if request.param == "folder":
        return "photos", str(tmp_path)
    if request.param == "s3":
        url = request.getfixturevalue("s3")
        bucket, proxy, root = "photos", url, f"{url}/photos"
    else:
        root = request.getfixturevalue("ais")
        bucket, proxy = root.removeprefix("ais://"), request.getfixturevalue("ais_server").endpoint
    for path in sorted((tmp_path / "photos").iterdir()):
        store, name = open_store(f"{root}/{path.name}")
        store.send(path, name)
    return bucket, proxy


def test_the_three_documented_examples(where: tuple[str, str], tmp_path: Path) -> None:
    BUCKET_NAME, PROXY_URL = where  # noqa: N806

    # 1) in memory
    ais = AisDataset(BUCKET_NAME, PROXY_URL)
    train_dataset = ais.load_from_tar("train-{0..3}.tar.gz").shuffle().batch(BATCH_SIZE)
    test_dataset = ais.load_from_tar("train-{4..7}.tar.gz").batch(BATCH_SIZE)
    assert sorted(labels(train_dataset)) == list(range(12))
    assert labels(test_dataset) == list(range(12, 24)), "in the order of the template, on two targets too"
    first = next(iter(test_dataset))[0]
    assert (first.shape, first.dtype) == ((5, 224, 224, 3), tf.float32)
    np.testing.assert_array_equal(first[0], in_unit_range(photo(12)))

    # 2) with a TFRecord file
    path = str(tmp_path / "train.record")
    assert ais.load_from_tar("train-{0..3}.tar.gz", path=path) == [path]
    train_dataset = (
        tf.data.TFRecordDataset(filenames=[path]).map(default_record_parser).shuffle(buffer_size=1024).batch(BATCH_SIZE)
    )
    assert sorted(labels(train_dataset)) == list(range(12))
    image, label = next(iter(tf.data.TFRecordDataset([path]).map(default_record_parser)))
    np.testing.assert_array_equal(image, tf.image.resize(tf.cast(tf.io.decode_jpeg(photo(0)), tf.float32), (224, 224)))
    assert (int(label), label.dtype) == (0, tf.int32)

    # 3) with a translation of one's own
    convert, resize, decode = tf.image.convert_image_dtype, tf.image.resize, tf.io.decode_jpeg
    train_dataset = ais.load_from_tar(
        "train-{0..3}.tar.gz",
        record_to_pair=lambda r: (resize(convert(decode(r["jpg"]), tf.float32), (224, 224)), r["cls"]),
    ).shuffle().batch(BATCH_SIZE)  # fmt: skip
    assert sorted(labels(train_dataset)) == list(range(12))


def test_each_proxy_has_its_own_bucket(
    ais_server: AIStore, ais: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two addresses in one process, neither of them that of the environment."""
    for shard in range(2):
        path = write_tar(tmp_path / f"train-{shard}.tar", [("a.cls", b"%d" % shard), ("a.jpg", photo(shard))])
        store, name = open_store(f"{ais}/{path.name}")
        store.send(path, name)
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with FaultProxy(ais_server.port) as first, FaultProxy(ais_server.port) as second:
        datasets = [AisDataset(ais.removeprefix("ais://"), proxy.endpoint) for proxy in (first, second)]
        found = [dataset.load_from_tar(f"train-{shard}.tar") for shard, dataset in enumerate(datasets)]
        assert [labels(pairs.batch(1)) for pairs in found] == [[0], [1]]
        for shard, proxy in enumerate((first, second)):
            assert any(f"train-{shard}.tar" in path for path in proxy.requests)
            assert not any(f"train-{1 - shard}.tar" in path for path in proxy.requests)
        datasets[0].load_from_tar("train-*.tar", path=tmp_path / "train.record")
        assert sum(1 for _ in tf.data.TFRecordDataset(str(tmp_path / "train.record"))) == 2
    assert os.environ["AIS_ENDPOINT"] == "http://127.0.0.1:9"


def test_a_model_is_fitted(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    dataset = AisDataset("photos", str(tmp_path)).load_from_tar("train-{0..3}.tar.gz").batch(BATCH_SIZE)
    model = tf.keras.Sequential([tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(12)])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer="sgd")
    history = model.fit(dataset, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


# What the original could not, or did without a word


@pytest.fixture
def ais_dataset(tmp_path: Path) -> AisDataset:
    write_photos(tmp_path / "photos")
    return AisDataset("photos", tmp_path)


def test_record_to_example_is_taken(ais_dataset: AisDataset, tmp_path: Path) -> None:
    def as_message(record: dict[str, Any]) -> Any:
        feature = {
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[record["__key__"].encode()])),
            "twice": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(record["cls"])] * 2)),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))

    ais_dataset.load_from_tar("train-{0..1}.tar.gz", path=tmp_path / "out", record_to_example=as_message)
    found = [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(tmp_path / "out"))]
    assert [each.features.feature["name"].bytes_list.value[0] for each in found] == [b"d/s%d" % n for n in range(6)]
    assert found[4].features.feature["twice"].int64_list.value == [4, 4]
    as_dict = ais_dataset.load_from_tar(
        "train-{0..1}.tar.gz", path=tmp_path / "out", record_to_example=lambda r: {"label": int(r["cls"])}
    )
    assert as_dict == [str(tmp_path / "out")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "photos"], "nothing is left beside it"


def test_an_empty_path_is_none_and_a_template_needs_no_range(ais_dataset: AisDataset) -> None:
    assert labels(ais_dataset.load_from_tar("train-3.tar.gz", path="").batch(BATCH_SIZE)) == [9, 10, 11]


def test_a_tar_that_is_not_there_is_an_error(ais_dataset: AisDataset) -> None:
    with pytest.raises(StorageError, match=r"train-8\.tar\.gz"):
        ais_dataset.load_from_tar("train-{6..8}.tar.gz")


def test_grey_images_have_three_channels(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    write_tar(tmp_path / "b" / "train-0.tar", [("a.jpg", photo(1, "L")), ("a.cls", b"1")])
    ais = AisDataset("b", tmp_path)
    ais.load_from_tar("train-0.tar", path=tmp_path / "train.record")
    image, _ = next(iter(tf.data.TFRecordDataset(str(tmp_path / "train.record")).map(default_record_parser)))
    assert image.shape == (224, 224, 3)
    assert next(iter(ais.load_from_tar("train-0.tar")))[0].shape == (224, 224, 3)
    assert default_record_to_example({"jpg": photo(1, "L"), "cls": b"1\n"}) == {
        "height": 41, "width": 30, "depth": 1, "label": 1, "image_raw": photo(1, "L")
    }  # fmt: skip


def test_pairs_of_other_types_and_shapes(ais_dataset: AisDataset) -> None:
    pairs = ais_dataset.load_from_tar(
        "train-{0..1}.tar.gz",
        record_to_pair=lambda r: (np.arange(int(r["cls"])), r["__key__"]),
        output_types=(tf.int64, tf.string),
        output_shapes=([None], []),
    )
    found = [(len(value), label.numpy()) for value, label in pairs]
    assert found == [(number, b"d/s%d" % number) for number in range(6)]
    assert pairs.element_spec == (tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.string))


def test_what_makes_no_sense_is_said(ais_dataset: AisDataset, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="outputshapes"):
        ais_dataset.load_from_tar("train-0.tar.gz", outputshapes=[])  # type: ignore[call-arg]
    with pytest.raises(SchemaError, match=r"expected \(value, label\), got int"):
        ais_dataset.load_from_tar("train-0.tar.gz", record_to_pair=lambda r: 1).batch(2)
    (tmp_path / "photos" / "train-9.tar").write_bytes(b"no tar")
    with pytest.raises(ValueError, match=r"train-9\.tar"):
        ais_dataset.load_from_tar("train-9.tar")
    assert not tarfile.is_tarfile(tmp_path / "photos" / "train-9.tar")


def labels(dataset: Any) -> list[int]:
    found = [batch for _, batch in dataset]
    assert all(batch.dtype == tf.int32 for batch in found)
    return [int(label) for batch in found for label in batch]


def in_unit_range(data: bytes) -> Any:
    return tf.image.resize(tf.image.convert_image_dtype(tf.io.decode_jpeg(data), tf.float32), (224, 224))


def test_a_range_may_have_a_step(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    found = AisDataset("photos", tmp_path).load_from_tar("train-{0..7..3}.tar.gz")
    assert [int(label) for _, label in found] == [0, 1, 2, 9, 10, 11, 18, 19, 20]


def test_each_epoch_of_single_pairs_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    members = [(f"{n:02}.{kind}", data) for n in range(20) for kind, data in (("jpg", photo(n)), ("cls", b"%d" % n))]
    write_tar(tmp_path / "photos" / "all.tar", members)
    pairs = AisDataset("photos", tmp_path).load_from_tar("all.tar").shuffle(seed=3)
    first, second = ([int(label) for _, label in pairs] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second


def test_samples_that_lack_something(tmp_path: Path) -> None:
    """A stray file is no sample, as it was; one that lacks its label is an error with the tar and the sample."""
    (tmp_path / "photos").mkdir()
    whole = [("a.jpg", photo(0)), ("a.cls", b"7")]
    write_tar(tmp_path / "photos" / "stray.tar", [*whole, ("README.txt", b"hello")])
    write_tar(tmp_path / "photos" / "lacking.tar", [*whole, ("b.jpg", photo(1))])
    ais = AisDataset("photos", tmp_path)
    assert [int(label) for _, label in ais.load_from_tar("stray.tar")] == [7]
    with pytest.raises(Exception, match=r"expected a sample with jpg and cls, got no cls - at b - at .*lacking.tar"):
        list(ais.load_from_tar("lacking.tar"))


def test_what_goes_with_a_file_and_what_without(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    ais = AisDataset("photos", tmp_path)
    with pytest.raises(SchemaError, match="expected record_to_example for a file to write, got no path"):
        ais.load_from_tar("train-0.tar.gz", record_to_example=dict)
    with pytest.raises(SchemaError, match=r"expected the name of a file to write, got a folder - at .*photos"):
        ais.load_from_tar("train-0.tar.gz", path=tmp_path / "photos")


def test_the_same_order_each_epoch_if_that_is_asked_for(ais_dataset: AisDataset) -> None:
    """What is taken from the front, and what is left, share nothing."""
    dataset = ais_dataset.load_from_tar("train-{0..3}.tar.gz").shuffle(1024, 3, False)
    held, rest = (labels(part.batch(4, num_parallel_calls=2)) for part in (dataset.take(4), dataset.skip(4)))
    assert sorted(held + rest) == list(range(12))
    assert held + rest != list(range(12))
    other = ais_dataset.load_from_tar("train-{0..3}.tar.gz").shuffle(seed=-1)
    assert sorted(labels(other.batch(5))) == list(range(12))


def test_floats_are_those_of_a_tf_example(ais_dataset: AisDataset, tmp_path: Path) -> None:
    def example(record: dict[str, Any]) -> dict[str, Any]:
        rows = [[1], [2, 3]]
        return {
            "score": 0.5,
            "scores": [0.5, 1.5],
            "array": np.full(2, 0.25),
            "rows": rows,
            "label": int(record["cls"]),
        }

    path = tmp_path / "out"
    ais_dataset.load_from_tar("train-0.tar.gz", path, example, record_to_pair=default_record_to_pair)
    wanted = {"score": [], "scores": [2], "array": [2]}
    features = {name: tf.io.FixedLenFeature(shape, tf.float32) for name, shape in wanted.items()}
    found = [tf.io.parse_single_example(record, features) for record in tf.data.TFRecordDataset(str(path))]
    assert [float(each["score"]) for each in found] == [0.5] * 3
    assert [each["array"].numpy().tolist() for each in found] == [[0.25, 0.25]] * 3


def test_other_files_in_a_tar_are_left_out(tmp_path: Path) -> None:
    members = [("README.txt", b"read me"), ("s0.jpg", photo(0)), ("s0.cls", b"7")]
    (tmp_path / "photos").mkdir()
    write_tar(tmp_path / "photos" / "t.tar", members)
    dataset = AisDataset("photos", tmp_path)
    dataset.load_from_tar("t.tar", path=tmp_path / "out")
    assert [int(label) for _, label in tf.data.TFRecordDataset(str(tmp_path / "out")).map(default_record_parser)] == [7]
    assert labels(dataset.load_from_tar("t.tar").batch(1)) == [7]


def classes(folder: Path, mode: str = "w:gz", count: int = 40) -> AisDataset:
    """Four small tars, each of one class."""
    folder.mkdir(parents=True)
    for label in range(4):
        members = [(f"{label}-{n}.{ext}", b"%d" % label) for n in range(count) for ext in ("cls", "txt")]
        write_tar(folder / f"s-{label}.tar.gz", members, mode=mode)
    return AisDataset(folder.name, folder.parent)


def by_class(record: dict[str, Any]) -> tuple[Any, Any]:
    return int(record["cls"]), int(record["txt"])


def test_what_comes_back_is_a_dataset_of_tensorflow(tmp_path: Path) -> None:
    pairs = classes(tmp_path / "tars").load_from_tar("s-{0..3}.tar.gz", record_to_pair=by_class)
    for dataset in (pairs, pairs.shuffle(), pairs.shuffle(1024), pairs.shuffle().shuffle(seed=3)):
        assert isinstance(dataset, tf.data.Dataset)
        assert len(dataset) == 160
        assert dataset.element_spec == pairs.element_spec
        assert sorted(int(label) for _, label in dataset) == [n // 40 for n in range(160)]
    assert len(list(pairs.concatenate(pairs))) == len(list(pairs.concatenate(pairs.shuffle()))) == 320
    assert all(int(a) == int(b) for (a, _), (b, _) in tf.data.Dataset.zip((pairs, pairs)))
    mixed = tf.data.Dataset.sample_from_datasets([pairs.take(40), pairs.skip(120)], seed=1)
    assert sorted(int(label) for _, label in mixed) == [0] * 40 + [3] * 40
    assert len(list(pairs.interleave(lambda *pair: tf.data.Dataset.from_tensors(pair)))) == 160
    assert [int(label) for _, label in pairs.filter(lambda _, label: label == 2).take(3)] == [2, 2, 2]


@pytest.mark.parametrize("large", [False, True])
def test_a_shuffle_goes_across_compressed_tars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool, recwarn: pytest.WarningsRecorder
) -> None:
    if large:  # four of them, of which memory holds three
        recipe = sys.modules["penstock.loading.spec"]
        monkeypatch.setattr(recipe, "HELD", 3 * 82_000)
        monkeypatch.setattr(sys.modules["penstock.compat.tar2tf"], "HELD", 3 * 82_000)
    pairs = classes(tmp_path / "tars").load_from_tar("s-{0..3}.tar.gz", record_to_pair=by_class)
    for shuffled in (pairs.shuffle(1024), pairs.shuffle(), pairs.shuffle(1024, seed=5)):
        batches = [{int(value) for value in batch[0]} for batch in shuffled.batch(16)]
        assert len(batches) == 10
        if large:
            assert sum(map(len, batches)) > 20, batches
        else:
            assert sum(len(batch) >= 3 for batch in batches) >= 9, batches
        first, second = ([int(value) for value, _ in shuffled] for _ in range(2))
        assert sorted(first) == sorted(second)
        assert first != second
    assert not [warning for warning in recwarn if "shuffled within windows" in str(warning.message)]


def test_scattered_tars_of_plain_tar(tmp_path: Path) -> None:
    """As `tar czf` makes them, and as TAR2TF read them: grouped by key."""
    folder = tmp_path / "photos"
    folder.mkdir()
    members = [(f"d/s{n}.jpg", photo(n)) for n in range(12)] + [(f"d/s{n}.cls", b"%d" % n) for n in range(12)]
    write_tar(folder / "train-0.tar.gz", members, mode="w:gz")
    ais = AisDataset("photos", tmp_path)
    assert [int(label) for _, label in ais.load_from_tar("train-0.tar.gz")] == list(range(12))
    ais.load_from_tar("train-0.tar.gz", path=tmp_path / "train.record")
    records = tf.data.TFRecordDataset(str(tmp_path / "train.record")).map(default_record_parser)
    assert [int(label) for _, label in records] == list(range(12))


def test_without_a_folder_for_the_cache_it_works_in_memory(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no folder").write_text("")
    classes(tmp_path / "tars")
    for path in sorted((tmp_path / "tars").iterdir()):
        store, name = open_store(f"{s3}/tars/{path.name}")
        store.send(path, name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no folder"))
    pairs = AisDataset("tars", s3).load_from_tar("s-{0..3}.tar.gz", record_to_pair=by_class)
    labels_of = [int(label) for _, label in pairs.shuffle(seed=2)]
    assert sorted(labels_of) == [n // 40 for n in range(160)]
