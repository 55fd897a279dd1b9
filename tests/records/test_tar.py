"""Tar shards: read in place, as WebDataset reads them."""

from __future__ import annotations

import io
import pickle
import random
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tar_files import jpeg, npy, sample, shards, write_tar

from penstock import (
    ArgumentError,
    CorruptionError,
    Dataset,
    Field,
    Image,
    PenstockError,
    Schema,
    SchemaError,
    TFRecordReader,
    TFRecordWriter,
    load,
    mix,
)
from penstock._core import Shard, list_tar
from penstock.dataset.record_files import split_name
from penstock.records.shard import open_shard, verify
from penstock.records.tfrecord import salvage_records


def theirs(paths: list[Path]) -> list[dict[str, Any]]:
    """What the real webdataset reads, undecoded."""
    import webdataset

    dataset = webdataset.WebDataset([str(path) for path in paths], shardshuffle=False, empty_check=False)
    return [
        {name: value for name, value in found.items() if name not in ("__url__", "__local_path__")} for found in dataset
    ]


def ours(dataset: Dataset, split: str = "train") -> list[dict[str, Any]]:
    """The same of a dataset whose files were left as bytes."""
    return [{name: value for name, value in example.items() if value is not None} for example in dataset[split]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tars, 40 samples."""
    made = tmp_path_factory.mktemp("tars")
    shards(made, [20, 1, 19])
    return made


def test_examples_are_decoded_by_their_extensions(folder: Path) -> None:
    dataset = load(folder / "train-{000..002}.tar")
    assert dataset.schema == Schema(
        {
            "__key__": "str",
            "jpg": Field(dtype="bytes", kind="image"),
            "cls": "int64",
            "txt": "str",
            "json": "str",
            "npy": Field(dtype="float32", shape=(2, 3), encoding="bytes"),
            "raw.bin": "bytes",
        }
    )
    example = dataset["train"][21]
    assert (example["__key__"], example["cls"], example["txt"], example["json"]) == (
        "d/00021",
        21,
        "número 21",
        '{"n": 21}',
    )
    assert example["raw.bin"] == bytes([21, 0, 255])
    assert example["jpg"].shape == (6, 5, 3)
    np.testing.assert_array_equal(example["npy"], np.arange(6, dtype=np.float32).reshape(2, 3) + 21)
    assert len(dataset["train"]) == 40
    assert dataset["train"][-1]["cls"] == 39


def test_the_real_webdataset_reads_the_same(folder: Path) -> None:
    paths = sorted(folder.glob("*.tar"))
    found = ours(load(paths, decode=False))
    assert found == theirs(paths)
    assert len(found) == 40


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_of_every_kind_are_webdatasets(tmp_path: Path, format: int) -> None:
    names = ["a.txt", "a.Seg.PNG", "./b.txt", "deep/er/c.x.y.z", "a.b/d.txt", "no_extension", "__meta__", "__m__/x.txt"]
    names += [f"{'d' * 90}/{'e' * 60}.txt", "f.txt", "f.cls"]
    names += [] if format == tarfile.USTAR_FORMAT else ["e/ü.txt"]
    path = write_tar(tmp_path / "a.tar", [(name, b"7") for name in names], format=format)
    with tarfile.open(path, "a", format=format) as archive:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            other = tarfile.TarInfo("g.txt")
            other.type, other.linkname = kind, "f.txt"
            archive.addfile(other)
    assert ours(load(path, decode=False)) == theirs([path])


WRAPPED = [(f"a.{end}", mode) for mode in ("gz", "bz2", "xz") for end in (f"tar.{mode}", f"t{mode}", "tar", "bin")]


@pytest.mark.parametrize(("name", "mode"), [*((name, f"w:{mode}") for name, mode in WRAPPED), ("c.bin", "w")])
def test_by_content_as_well_as_by_name(tmp_path: Path, name: str, mode: str) -> None:
    path = write_tar(tmp_path / name, sample(3), mode=mode)
    assert load(path)["train"][0]["cls"] == 3


def test_zstd(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    plain = write_tar(tmp_path / "a.tar", [member for at in range(9) for member in sample(at)]).read_bytes()
    for name in ("b.tar.zst", "b.tar", "anything"):
        packed = tmp_path / name
        with pyarrow.CompressedOutputStream(str(packed), "zstd") as out:
            out.write(plain)
        assert load(packed)["train"].batch(9).__iter__().__next__()["cls"].tolist() == list(range(9))


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz"])
def test_every_wrapping_is_read_and_a_broken_one_reported(tmp_path: Path, mode: str) -> None:
    rng = np.random.default_rng(0)
    members = [(f"{at}.bin", rng.bytes(30_000)) for at in range(60)]
    path = write_tar(tmp_path / f"train-0.tar.{mode}", members, mode=f"w:{mode}")
    train = load(tmp_path)["train"]
    assert len(train) == 60
    assert [train[at]["bin"] for at in (59, 0)] == [members[59][1], members[0][1]]
    assert open_shard(path).compression == {"gz": "gzip", "bz2": "bzip2"}.get(mode, mode)
    data = bytearray(path.read_bytes())
    data[-len(data) // 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"train-0\.tar\."):
        list(load(tmp_path)["train"])
    report = salvage_records(path, tmp_path.parent / "saved.tfrecord")
    assert (report.records, len(report.gaps)) == (0, 1)  # a checksum of the whole is wrong: none of it can be trusted
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptionError, match=r"train-0\.tar\."):
        load(tmp_path)["train"]


def test_exact_shuffle_resume_and_random_access(folder: Path) -> None:
    train = load(folder)["train"]
    shuffled = train.shuffle(seed=3).batch(7)
    batches = [batch["cls"].tolist() for batch in shuffled]
    seen = [number for batch in batches for number in batch]
    assert sorted(seen) == list(range(40))
    assert seen != sorted(seen)
    iterator = iter(train.shuffle(seed=3).batch(7))
    assert [next(iterator)["cls"].tolist() for _ in range(2)] == batches[:2]
    state = iterator.state()
    again = load(folder)["train"].shuffle(seed=3).batch(7).resume(state)
    assert [batch["cls"].tolist() for batch in again] == batches[2:]
    hosts = [batch["cls"].tolist() for host in range(3) for batch in train.shuffle(3).shard(host, 3).batch(5)]
    assert sorted(number for batch in hosts for number in batch) == list(range(40))
    chosen = train[[39, 0, 20]]
    assert chosen["cls"].tolist() == [39, 0, 20]
    assert chosen["npy"].shape == (3, 2, 3)
    small = next(iter(train.decode(jpg=Image(size=(4, 4))).batch(40)))["jpg"]
    assert small.shape == (40, 4, 4, 3)


def test_nothing_is_written_but_an_index_beside_it(tmp_path: Path) -> None:
    (path,) = shards(tmp_path, [5])
    assert list(load(path)["train"])[4]["cls"] == 4
    assert sorted(found.name for found in tmp_path.iterdir()) == ["train-000.tar", "train-000.tar.index"]
    write_tar(path, sample(9))  # the index no longer fits: it is made anew
    assert [example["cls"] for example in load(path)["train"]] == [9]


def test_a_tar_that_grew_within_its_padding_is_listed_anew(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.txt", b"a"), ("1.txt", b"b")])
    size = path.stat().st_size
    assert len(load(path)["train"]) == 2
    with tarfile.open(path, "a") as archive:
        for name in ("2.txt", "3.txt"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"c"))
    assert path.stat().st_size == size
    assert [example["txt"] for example in load(path)["train"]] == ["a", "b", "c", "c"]


def test_pickled_mixed_and_on_threads(folder: Path, tmp_path: Path) -> None:
    train = load(folder)["train"]
    copy = pickle.loads(pickle.dumps(train))  # noqa: S301
    assert copy[5]["txt"] == train[5]["txt"]
    other = load(write_tar(tmp_path / "x.tar", [(f"{n}.cls", b"-1") for n in range(40)]))["train"]
    mixed = mix({train.select("cls"): 1, other.select("cls"): 1}, seed=0)
    taken = [example["cls"] for example in mixed.take(30)]
    assert -1 in taken
    assert set(taken) - {-1} == set(range(30 - taken.count(-1)))


def test_compressed_tars_that_memory_holds_are_shuffled_as_a_whole(tmp_path: Path) -> None:
    shards(tmp_path, [6, 9, 5], name="train-{}.tar.gz", mode="w:gz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shuffled = load(tmp_path)["train"].shuffle(1)
    found = [example["cls"] for example in shuffled]
    assert sorted(found) == list(range(20))
    assert found == [example["cls"] for example in load(tmp_path)["train"].shuffle(1, window=20)]


def test_compressed_tars_say_that_their_window_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards(tmp_path, [6, 9, 5], name="train-{}.tar.gz", mode="w:gz")
    train = load(tmp_path)["train"]
    monkeypatch.setattr(sys.modules["penstock.loading.spec"], "HELD", 20_000)
    with pytest.warns(UserWarning, match="within windows of 9 examples"):
        shuffled = train.shuffle(1)
    assert sorted(example["cls"] for example in shuffled) == list(range(20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sorted(example["cls"] for example in train.shuffle(1, window=20)) == list(range(20))
        single = load(tmp_path / "train-0.tar.gz")["train"]
        monkeypatch.setattr(sys.modules["penstock.loading.spec"], "HELD", 1)
        single.shuffle(1)


def test_a_large_compressed_tar_is_shuffled_within_what_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(tmp_path, [40], name="train-{}.tar.gz", mode="w:gz")
    train = load(tmp_path)["train"]
    size = int(Shard(tmp_path / "train-0.tar.gz").offsets[-1])
    recipe = sys.modules["penstock.loading.spec"]
    monkeypatch.setattr(recipe, "WHOLE", size - 1)
    monkeypatch.setattr(recipe, "WINDOW", size // 2)  # half of which is a window
    with pytest.warns(UserWarning, match="within windows of 10 examples"):
        shuffled = train.shuffle(1)
    assert sorted(example["cls"] for example in shuffled) == list(range(40))


def test_splits_by_name(tmp_path: Path) -> None:
    for name in ("train-000.tar", "train-001.tar", "val-000.tar", "val-000.tar.txt"):
        write_tar(tmp_path / name, [(f"{name}.cls", b"1")])
    dataset = load(tmp_path)
    assert {split: len(dataset[split]) for split in dataset} == {"train": 2, "val": 1}
    words = {"a/imagenet-train-000123.tar": "train", "test.tgz": "test", "val_1.tar.gz": "val", "x.csv": ""}
    words["val_2.txz"] = "val"
    assert {path: split_name(path) for path in words} == words


def test_arrays_of_other_sizes_and_a_schema_of_ones_own(tmp_path: Path) -> None:
    arrays = [np.full((n + 1, 2, 3 - n), n, np.int16) for n in range(3)]
    members = [
        (f"{n}.{name}", data)
        for n, array in enumerate(arrays)
        for name, data in (("npy", npy(array)), ("score", b"0.25"))
    ]
    path = write_tar(tmp_path / "a.tar", members)
    dataset = load(path)
    assert str(dataset.schema["npy"]) == "int16[?,2,?]"
    assert str(dataset.schema["score"]) == "bytes"
    for found, array in zip(dataset["train"], arrays, strict=True):
        np.testing.assert_array_equal(found["npy"], array)
    declared = load(path, schema={"npy": "int16[?,?,?]", "score": "float32"})["train"]
    assert declared[2]["score"] == np.float32(0.25)
    assert declared[2].keys() == {"npy", "score"}
    with pytest.raises(
        SchemaError, match=r"expected an array of <i2\[1,2,3\] in \"1.npy\", got <i2\[2, 2, 2\] - at .*a.tar, offset"
    ):
        load(path, schema={"npy": "int16[1,2,3]"})["train"][1]
    with pytest.raises(SchemaError, match="expected a type that a file in a tar has, got list"):
        load(path, schema={"score": "list[float32]"})


def test_missing_files_are_optional(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.cls", b"1"), ("0.txt", b"a"), ("1.cls", b"2")])
    batch = next(iter(load(path)["train"].batch(2)))
    assert batch["cls"].tolist() == [1, 2]
    assert list(batch["txt"]) == ["a", None]


def test_damaged_samples_are_skipped_if_asked(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [(f"{n}.cls", b"x" if n == 3 else b"%d" % n) for n in range(9)])
    with pytest.raises(PenstockError, match=r'expected a whole number in "3.cls", got "x" - at .*a.tar, offset'):
        list(load(path, schema={"cls": "int64"})["train"])
    iterator = iter(load(path, schema={"cls": "int64"}, on_error="skip")["train"].batch(9))
    assert next(iterator)["cls"].tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert iterator.skipped.total == 1


BROKEN = {
    "truncated": (lambda whole: whole[: 512 * 5 + 100], r"truncated - at .*a.tar, offset"),
    "header": (lambda whole: whole[:20] + b"!" + whole[21:], r"checksum is \d+, got \d+ - at .*a.tar, offset 0"),
    "no end": (lambda whole: whole[: 512 * 6], "expected a member's header or the end of the archive"),
    "nothing": (lambda whole: b"", "truncated"),
    "not a tar": (lambda whole: b"hello" * 500, "expected a member's header whose checksum"),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_broken_tars_are_errors_with_their_place(tmp_path: Path, damage: str) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.txt", b"A"), ("b.txt", b"B"), ("c.txt", b"C")])
    change, message = BROKEN[damage]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CorruptionError, match=message):
        load(path)
    assert not verify(path).whole
    assert [found.name for found in tmp_path.iterdir()] == ["a.tar"]


def test_broken_gzip(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "a.tar.gz", [(f"{n}.bin", random.Random(n).randbytes(3000)) for n in range(5)], mode="w:gz"
    )
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-4] + b"abcd", whole[:2000] + b"\0\0\0\0" + whole[2004:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=r"a\.tar\.gz"):
            load(path)


def test_files_twice_and_names_that_lead_out(tmp_path: Path) -> None:
    for members, message in (
        (["a.txt", "b.txt", "a.txt"], 'another one: "a.txt"'),
        (["a.txt", "a.txt"], 'another one: "a.txt"'),
        (["a.txt", "a.TXT"], 'another one: "a.TXT"'),
        (["/etc/passwd.txt"], 'expected a name within the archive, got "/etc/passwd.txt"'),
        (["a/../../b.txt"], "expected a name within the archive"),
    ):
        with pytest.raises(CorruptionError, match=message):
            load(write_tar(tmp_path / "a.tar", [(name, b"1") for name in members]))


def test_a_huge_declared_size_takes_no_memory(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a.bin")
    member.size = 1 << 60
    path = tmp_path / "a.tar"
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises(
        CorruptionError, match=f'expected the {1 << 60} bytes of "a.bin", got a file that ends 2048 bytes on'
    ):
        load(path)


def test_a_tar_among_record_files(folder: Path, tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        writer.write(b"")
    with pytest.raises(ArgumentError, match="expected files of one kind, got the tar"):
        load([tmp_path / "a.tfrecord", folder / "train-000.tar"])
    with pytest.raises(SchemaError, match="expected a TFRecord file, got a tar file"):
        TFRecordReader(folder / "train-000.tar")


FOLDERS = st.sampled_from(["", "d/", "d/e.f/", "l" * 120 + "/"])
FORMATS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
KEYS = st.text("abc0_-", min_size=1, max_size=8).filter(lambda key: not key.startswith("__"))
EXTENSIONS = st.sampled_from(["cls", "txt", "bin", "x.bin", "Seg.PNG", "q"])
FILES = st.dictionaries(EXTENSIONS, st.binary(max_size=1200), min_size=1)


@settings(max_examples=40)
@given(
    st.dictionaries(st.tuples(FOLDERS, KEYS).map("".join), FILES, min_size=1),
    FORMATS,
    st.sampled_from(["w", "w:gz"]),
)
def test_any_tar_is_read_as_tarfile_reads_it(samples: dict[str, dict[str, bytes]], format: int, mode: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        members = [(f"{key}.{extension}", data) for key, files in samples.items() for extension, data in files.items()]
        path = write_tar(Path(folder) / "a.tar", members, mode=mode, format=format)
        expected = [
            {"__key__": key, **{extension.lower(): data for extension, data in files.items()}}
            for key, files in samples.items()
        ]
        assert ours(load(path, decode=False)) == expected
        assert list_tar(path)[0] == list(samples)


@settings(max_examples=150)
@given(st.data())
def test_changed_bytes_are_at_most_an_error(data: st.DataObject) -> None:
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=data.draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    ) as archive:
        for name in ("a" * 120 + ".txt", "b.txt", "b.cls"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"1"))
    changed = bytearray(buffer.getvalue())
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 4600), st.integers(0, 255)), max_size=4)):
        changed[at] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar"
        path.write_bytes(changed[: data.draw(st.integers(0, len(changed)))])
        verify(path)
        try:
            shard = Shard(path)
            [shard.read(number) for number in range(len(shard))]
        except (CorruptionError, SchemaError) as error:
            said = str(error)
        else:
            said = "a.tar"
        assert "a.tar" in said


def test_images_that_are_none_are_named(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.jpg", jpeg(0)), ("1.jpg", b"no image")])
    with pytest.raises(PenstockError, match="record 1"):
        list(load(path)["train"])
