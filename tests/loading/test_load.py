"""`load`: what opens, what a split gives, and what is said when something is missing."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.built_datasets import described_shards

import penstock as ps
from penstock.dataset.open import cached_index

SCHEMA = {"id": "int64", "tokens": "int64[?]", "text": "str", "dense": "float32[3]", "maybe": "int64?"}


def example(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "tokens": np.arange(number % 7) + number,
        "text": f"text {number}",
        "dense": np.full(3, number, np.float32),
        "maybe": None if number % 3 else number,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "toy"
    source = ps.splits(train=[example(i) for i in range(100)], test=[example(i) for i in range(100, 120)])
    ps.build(source, path, shards=3, schema=SCHEMA)
    return path


def ids(batch: Any) -> list[int]:
    return [int(number) for number in batch["id"]]


def order(folder: Path, split: str = "train") -> list[int]:
    """The ids in the order that they are stored in, read by other means."""
    codec = ps.Codec({"id": "int64"})
    found: list[int] = []
    for path in sorted(folder.glob(f"toy-{split}.tfrecord-?????-of-?????")):
        found += ids(ps.TFRecordReader(path).examples(codec, slice(None)))
    return found


def write(path: Path, rows: range, schema: dict[str, str] | None = None) -> Path:
    with ps.TFRecordWriter(path) as writer:
        codec = ps.Codec(schema or {"id": "int64", "dense": "float32[3]"})
        writer.write_columns(codec, {"id": np.array(rows), "dense": np.zeros((len(rows), 3), np.float32)})
    return path


# Datasets and splits


def test_a_dataset_is_a_mapping_of_splits(folder: Path) -> None:
    ds = ps.load(folder)
    assert list(ds) == ["train", "test"]
    assert len(ds) == 2
    assert "train" in ds
    assert "tran" not in ds
    assert {name: len(split) for name, split in ds.items()} == {"train": 100, "test": 20}
    assert ds.schema == ps.Schema(SCHEMA)
    assert ds.name == "toy"
    info = ds.info()
    assert info["splits"]["train"] == {
        "examples": 100,
        "shards": 3,
        "bytes": sum(path.stat().st_size for path in folder.glob("toy-train.tfrecord-?????-of-?????")),
    }
    assert info["found"]["bad"] == 0


def test_any_example_is_at_hand(folder: Path) -> None:
    train, stored = ps.load(folder)["train"], order(folder)
    assert [int(train[i]["id"]) for i in range(100)] == stored
    assert [int(each["id"]) for each in train] == stored
    assert int(train[-1]["id"]) == stored[-1]
    assert int(train[np.int32(7)]["id"]) == stored[7]
    got = train[5]
    want = example(stored[5])
    assert (got["text"], got["maybe"]) == (want["text"], want["maybe"])
    np.testing.assert_array_equal(got["tokens"], want["tokens"])
    np.testing.assert_array_equal(got["dense"], want["dense"])
    assert train.key(5) == str(stored[5])


def test_an_example_is_read_while_another_one_is_read(tmp_path: Path) -> None:
    """The garbage collector runs Python code in the middle of a read, which may read too."""
    ps.build([{"x": n, "tags": ["a"] * n} for n in range(30)], tmp_path / "d", workers=1)
    train = ps.load(tmp_path / "d")["train"]
    expected = [int(train[number]["x"]) for number in range(30)]
    inner = []

    def read_another(phase: str, info: dict[str, int]) -> None:
        inner.append(int(train[7]["x"]))

    threshold = gc.get_threshold()
    gc.callbacks.append(read_another)
    gc.set_threshold(1, 1, 1)
    try:
        read = [int(train[number]["x"]) for number in range(30)]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(read_another)
    assert read == expected
    assert inner
    assert set(inner) == {expected[7]}


def test_several_examples_are_a_batch(folder: Path) -> None:
    train, stored = ps.load(folder)["train"], order(folder)
    assert ids(train[10:20]) == stored[10:20]
    assert ids(train[90:200]) == stored[90:]
    assert ids(train[::-7]) == stored[::-7]
    assert ids(train[[5, 90, 12, 5, -1]]) == [stored[i] for i in (5, 90, 12, 5, -1)]
    assert ids(train[np.array([3, 4])]) == stored[3:5]
    assert ids(train[3:3]) == []
    assert ids(train[[]]) == []
    batch = train[10:20]
    assert isinstance(batch["tokens"], ps.Ragged)
    assert batch["text"].to_list() == [f"text {i}" for i in stored[10:20]]
    rows = train.__getitems__([4, 2])
    assert [int(row["id"]) for row in rows] == [stored[4], stored[2]]


def test_parts_of_splits(folder: Path) -> None:
    ds, stored, other = ps.load(folder), order(folder), order(folder, "test")
    assert ids(ds["train[:80%]"][:]) == stored[:80]
    assert ids(ds["test+train[-3:]"][:]) == other + stored[-3:]
    assert ids(ds["test+train[-3:]"][[-1, 0, 20]]) == [stored[-1], other[0], stored[-3]]
    assert int(ds["test+train[-3:]"][20]["id"]) == stored[-3]
    assert ids(ds["all"][:]) == stored + other
    assert len(ds["train[1shard]"]) in (33, 34)
    assert [int(each["id"]) for each in ds["test+train[-3:]"]] == other + stored[-3:]
    assert len(ds["train[:0]"]) == 0
    assert list(ds["train[:0]"]) == []
    assert list(ds["train[:0]"].shuffle(1).batch(3)) == []


def test_what_is_not_there_is_named(folder: Path) -> None:
    ds = ps.load(folder)
    with pytest.raises(KeyError, match=r"no split 'trian'. Did you mean 'train'.*splits are: train, test"):
        ds["trian"]
    with pytest.raises(KeyError, match=r"Take a split first: ds\['train'\]\[5\]"):
        ds[5]  # type: ignore[index]
    for index in (100, -101):
        with pytest.raises(ps.RecordIndexError, match=f"example {index} is outside of the split 'train' of 100"):
            ds["train"][index]
        with pytest.raises(IndexError, match="outside of the split"):
            ds["train"][[0, index]]
    for wrong in ("5", 1.5, None):
        with pytest.raises(TypeError, match="expected an int, a slice or a list of ints"):
            ds["train"][wrong]  # type: ignore[index]
    with pytest.raises(ps.ArgumentError, match="expected a list of ints, got float64"):
        ds["train"][[1.5]]  # type: ignore[list-item]
    with pytest.raises(ps.NotFoundError, match="got nothing at"):
        ps.load(folder / "nothing")
    with pytest.raises(ps.ArgumentError, match='expected on_error "raise" or "skip"'):
        ps.load(folder, on_error="quarantine")
    with pytest.raises(ps.ArgumentError, match='expected one of the formats "tfrecord"'):
        ps.load(folder, format="parquet")
    with pytest.raises(TypeError):
        ps.load(folder, batch=3)  # type: ignore[call-arg]


def test_they_look_like_what_they_are(folder: Path) -> None:
    ds = ps.load(folder)
    text = repr(ds)
    assert "Dataset('toy'" in text
    assert "train  100 examples in 3 shards" in text
    assert "tokens  int64[?]" in text
    assert repr(ds["train[:80%]"]).startswith("Split('train[:80%]': 80 examples)")
    assert repr(ds["train"].shuffle(seed=7).batch(64).shard(1, 4)) == (
        "Loader(toy[100 examples].shuffle(seed=7).batch(64).shard(1, 4))"
    )
    assert "<table>" in ds._repr_html_()
    assert "text" in ds["train"]._repr_html_()


def test_thumbnails_are_in_the_html(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    buffer = io.BytesIO()
    image.new("RGB", (40, 30), (200, 10, 10)).save(buffer, "PNG")
    rows = [{"image": buffer.getvalue(), "label": i % 2} for i in range(6)]
    schema = {
        "image": ps.Field(dtype="bytes", kind="image"),
        "label": ps.Field(dtype="int64", classes=("<cat>", "dog")),
    }
    ps.build(rows, tmp_path / "photos", schema=schema)
    for decode in (True, False):
        text = ps.load(tmp_path / "photos", decode=decode)["train"]._repr_html_()
        assert text.count('src="data:image/png;base64,') == 4
        assert "&lt;cat&gt; (0)" in text
        assert "<cat>" not in text


def test_pickles_are_small_and_open_again(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "toy"
    shutil.copytree(folder, moved)
    train = ps.load(moved)["train"]
    train[0]  # open files are not pickled
    data = pickle.dumps(train)
    assert len(data) < 1000
    again = pickle.loads(data)  # noqa: S301
    assert ids(again[:]) == ids(train[:])
    assert ids(copy.deepcopy(train)[:5]) == ids(train[:5])
    loader = pickle.loads(pickle.dumps(train.shuffle(3).batch(8)))  # noqa: S301
    assert [ids(batch) for batch in loader] == [ids(batch) for batch in train.shuffle(3).batch(8)]
    ps.build([example(i) for i in range(50)], moved, shards=1, schema=SCHEMA, overwrite=True)
    with pytest.raises(ps.SchemaError, match="expected the dataset that was pickled"):
        pickle.loads(data)  # noqa: S301


def test_a_build_gives_the_dataset(tmp_path: Path) -> None:
    built = ps.build([example(i) for i in range(10)], tmp_path / "toy", schema=SCHEMA)
    assert isinstance(built, ps.Dataset)
    assert ids(built["train"][:]) == order(tmp_path / "toy")
    assert (built.written, built.path) == (1, tmp_path / "toy")
    assert repr(built).startswith("Built(")


# Files made by anyone


def test_a_single_file_opens(tmp_path: Path) -> None:
    path = write(tmp_path / "some.tfrecord", range(10))
    ds = ps.load(path)
    assert list(ds) == ["train"]
    assert ids(ds["train"][:]) == list(range(10))
    assert str(ds.schema["dense"]) == "float32[3]"
    assert (tmp_path / "some.tfrecord.index").exists()
    assert ids(ps.load(path, schema={"id": "int64"})["train"][2:4]) == [2, 3]


def test_globs_ranges_lists_and_folders_open(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"part-{number:02}.tfrecord", range(number * 10, number * 10 + 10))
    want = list(range(30))
    for path in (tmp_path / "part-*.tfrecord", tmp_path / "part-{00..02}.tfrecord", tmp_path):
        assert ids(ps.load(path)["train"][:]) == want
    assert ids(ps.load([tmp_path / "part-02.tfrecord", tmp_path / "part-00.tfrecord"])["train"][:]) == [
        *range(20, 30),
        *range(10),
    ]
    with pytest.raises(ps.SchemaError, match="got an empty list"):
        ps.load([])
    with pytest.raises(ps.StorageError, match="expected every file of the range"):
        ps.load(tmp_path / "part-{00..03}.tfrecord")


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["toy-train.tfrecord-00000-of-00002", "toy-train.tfrecord-00001-of-00002", "toy-test.tfrecord-00000-of-00001"],
         {"train": 20, "test": 10}),
        (["toy-train-2013.tfrecord-00000-of-00001", "toy-train-2014.tfrecord-00000-of-00001"],
         {"train-2013": 10, "train-2014": 10}),
        (["train-00000-of-00001", "validation-00000-of-00001"], {"train": 10, "validation": 10}),
        (["a.tfrecord", "toy-train.tfrecord-00000-of-00001"], {"train": 20}),
    ],
)  # fmt: skip
def test_names_tell_the_splits(tmp_path: Path, names: list[str], splits: dict[str, int]) -> None:
    paths = [write(tmp_path / name, range(10)) for name in names]
    assert {name: len(split) for name, split in ps.load(paths).items()} == splits


def test_the_index_goes_to_the_cache_where_the_folder_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write(tmp_path / "some.tfrecord", range(10))
    (tmp_path / "some.tfrecord.index").mkdir()  # nobody can write a file there, not even root
    kept = cached_index(str(path))
    assert kept.is_relative_to(tmp_path / "cache" / "penstock" / "index")
    assert ids(ps.load(path)["train"][:]) == list(range(10))
    first = kept.stat().st_mtime_ns
    assert ids(ps.load(path)["train"][:]) == list(range(10))
    assert kept.stat().st_mtime_ns == first
    write(tmp_path / "other", range(12)).replace(path)  # another file in its place: its index does not fit any more
    assert len(ps.load(path)["train"]) == 12
    assert len(ps.load(path, cache=tmp_path / "elsewhere")["train"]) == 12
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_compressed_files_open(tmp_path: Path) -> None:
    path = tmp_path / "some.tfrecord.gz"
    with ps.TFRecordWriter(path, ps.TFRecord(compression="gzip")) as writer:
        writer.write_columns(ps.Codec({"id": "int64"}), {"id": np.arange(30)})
    train = ps.load(path)["train"]
    assert ids(train[[29, 3]]) == [29, 3]
    assert sorted(i for batch in train.shuffle(1).batch(7) for i in ids(batch)) == list(range(30))


def test_files_that_hold_no_examples_say_so(tmp_path: Path) -> None:
    with ps.TFRecordWriter(tmp_path / "empty.tfrecord"):
        pass
    with pytest.raises(ps.SchemaError, match="expected records to infer a schema from"):
        ps.load(tmp_path / "empty.tfrecord")
    assert len(ps.load(tmp_path / "empty.tfrecord", schema={"id": "int64"})["train"]) == 0
    with ps.TFRecordWriter(tmp_path / "odd.tfrecord") as writer:
        writer.write(b"\xff\xff no tf.Example")
    with pytest.raises(ps.CorruptionError):
        ps.load(tmp_path / "odd.tfrecord")


# Damage


def damaged(folder: Path, tmp_path: Path, record: int = 3) -> tuple[Path, str, int]:
    """A copy with a bit flipped in one record of the first shard; its path and its key."""
    path = tmp_path / "toy"
    shutil.copytree(folder, path)
    shard = min(path.glob("toy-train.tfrecord-00000-of-?????"))
    offset = int(ps.TFRecordReader(shard).offsets[record]) + 20
    data = bytearray(shard.read_bytes())
    data[offset] ^= 1
    shard.write_bytes(data)
    key = order(folder)[record]
    return path, str(shard), key


def test_damage_names_file_offset_and_key(folder: Path, tmp_path: Path) -> None:
    path, shard, key = damaged(folder, tmp_path)
    train = ps.load(path)["train"]
    assert train[2]["id"] == order(folder)[2]
    readers: list[Any] = [lambda: train[3], lambda: train[0:10], lambda: list(train.batch(8)), lambda: list(train)]
    readers.append(lambda: list(train.map(lambda row: row).batch(8)))
    for read in readers:
        with pytest.raises(ps.CorruptionError) as caught:
            read()
        text = str(caught.value)
        assert shard in text
        assert "record 3" in text
        assert "offset" in text
        assert f"key '{key}'" in text


def test_what_comes_before_the_damage_is_handed_out(folder: Path, tmp_path: Path) -> None:
    path, _, _ = damaged(folder, tmp_path, record=30)
    train = ps.load(path)["train"]
    found = []
    for loader in (train.batch(8), train.map(dict).batch(8), train.batch(8).map(dict), train.batch(8).prefetch(2)):
        seen: list[int] = []
        with pytest.raises(ps.CorruptionError):
            seen.extend(i for batch in loader for i in ids(batch))
        assert seen == order(folder)[: len(seen)]
        found.append(len(seen))
    # Batches that the core reads together with the damaged one are lost with it; work ahead in Python loses no more.
    assert len(set(found)) == 1
    assert found[0] <= 24


def test_what_is_left_of_a_shard_that_was_cut_off_is_read(tmp_path: Path) -> None:
    rows = [{"id": number, "text": "x" * 100} for number in range(300)]
    built = ps.build(rows, tmp_path / "data", shards=3, order="source")
    shard = tmp_path / "data" / built.manifest.splits["train"][1].file
    whole = ps.TFRecordReader(shard)
    shard.write_bytes(shard.read_bytes()[: int(whole.offsets[41]) + 7])  # 41 records, and the beginning of one
    skipping = iter(ps.load(tmp_path / "data", on_error="skip")["train"].batch(16))
    assert [i for batch in skipping for i in batch["id"].tolist()] == [*range(141), *range(200, 300)]
    assert skipping.skipped.total == 59
    assert [skip.key for skip in skipping.skipped[:2]] == ["141", "142"]
    assert "record 41" in skipping.skipped[0].message
    train = ps.load(tmp_path / "data")["train"]
    assert train[140]["id"] == 140
    with pytest.raises(ps.CorruptionError, match="record 41"):
        train[141]
    with pytest.raises(ps.CorruptionError, match="record 41"):
        list(train.batch(100))
    shard.write_bytes(shard.read_bytes()[: int(whole.offsets[41])])  # between two records
    assert len(list(ps.load(tmp_path / "data", on_error="skip")["train"])) == 241


@pytest.mark.parametrize("steps", ["batch", "examples", "map", "cache", "drop", "pack"])
def test_damage_can_be_skipped_and_is_counted(
    folder: Path, tmp_path: Path, steps: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, shard, key = damaged(folder, tmp_path)
    train = ps.load(path, on_error="skip")["train"]
    loader: Any = {
        "batch": train.batch(8),
        "drop": train.batch(8, drop_remainder=True),
        "examples": train,
        "map": train.map(lambda row: row).batch(8),
        "cache": train.cache().batch(8),
        "pack": train.select("id", "tokens").map(lambda row: {"id": row["tokens"] * 0 + row["id"]}).pack(1),
    }[steps]
    iterator = iter(loader)
    found = [i for item in iterator for i in np.atleast_1d(item["id"]).tolist()]
    want = [i for i in order(folder) if i != key]
    if steps == "pack":
        assert found == [i for i in want for _ in range(i % 7)]
    else:
        assert found == (want[:96] if steps == "drop" else want)
    assert iterator.skipped.total == 1
    assert iterator.skipped[0].key == str(key)
    assert shard in iterator.skipped[0].message
    assert "offset" in iterator.skipped[0].message
    assert f"key '{key}'" in caplog.text
    if steps == "batch":  # batches are whole, though a record is missing
        assert [len(batch["id"]) for batch in loader] == [8] * 12 + [3]


def test_a_missing_shard_is_named(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "toy"
    shutil.copytree(folder, path)
    gone = min(path.glob("toy-train.tfrecord-00001-of-?????"))
    os.unlink(gone)
    train = ps.load(path)["train"]
    assert train[0]
    with pytest.raises(ps.NotFoundError, match=r"toy-train[.]tfrecord-00001"):
        list(train.batch(10))


def test_a_shard_that_is_not_the_manifests_is_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "toy"
    shutil.copytree(folder, path)
    first, second = sorted(path.glob("toy-train.tfrecord-0000[01]-of-?????"))
    if len(ps.TFRecordReader(first)) == len(ps.TFRecordReader(second)):
        second = min(path.glob("toy-test.tfrecord-00000-of-?????"))
    shutil.copy(second, first)
    shutil.copy(f"{second}.index", f"{first}.index")
    with pytest.raises(ps.PenstockError):
        list(ps.load(path)["train"].batch(10))


@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_opening_makes_no_object_for_each_shard(tmp_path: Path, format: str) -> None:
    """A dataset of 100,000 shards opens as quickly as one of ten: a shard is described when it is looked at."""
    source = ps.splits(train=[{"x": number} for number in range(300)], test=[{"x": -number} for number in range(1, 50)])
    ps.build(source, tmp_path / "toy", shards=40, format=format, workers=1, order="source")

    before = described_shards()
    dataset = ps.load(tmp_path / "toy")
    assert [int(dataset["train"][number]["x"]) for number in (0, 299)] == [0, 299]
    assert [int(x) for x in dataset["test"][:3]["x"]] == [-1, -2, -3]
    assert sum(len(batch["x"]) for batch in dataset["train"].shuffle(seed=1).batch(50)) == 300
    assert described_shards() == before
    files = dataset.files
    assert len(files) == 80
    assert [(file.path, file.records, file.sidecar, file.rules) for file in files] == list(files.places())
    assert [file.bytes for file in files] == files.sizes
    assert all(Path(file.path).is_file() for file in files)
    assert files[-1] == files[79] == files[70:][-1]
