"""The commands over what others have made: directories of TFDS and Datum, folders of files, and what is no dataset."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import S3
from tests.support.datum_files import exported_by_datum, picture, type_entry
from tests.support.tfds_cases import F, prepare

import penstock as ps
from penstock.cli import main


@pytest.fixture(scope="module", params=["tfrecord", "array_record"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that TFDS prepared."""
    features = F.FeaturesDict({"n": np.int64, "label": F.ClassLabel(names=["cat", "dog"])})
    splits = {
        name: [{"n": n, "label": n % 2} for n in range(count)] for name, count in {"train": 20, "test": 5}.items()
    }
    builder = prepare(tmp_path_factory.mktemp("prepared"), features, splits, file_format=request.param)
    return Path(builder.data_dir)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A directory as Datum writes it."""
    rows = [{"image": picture(n), "label": n} for n in range(4)]
    mapping = {"image": type_entry("string", 6, 8, 3), "label": type_entry("int")}
    return exported_by_datum(tmp_path / "exported", {"train": rows, "val": rows[:1]}, mapping)


def asked(capsys: pytest.CaptureFixture[str], *words: Any, code: int = 0) -> str:
    """What a command says, errors after the rest."""
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_directories_of_tfds(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "verify", prepared).count("whole") == 2  # before an index is there: nothing has opened it yet
    shown = asked(capsys, "info", prepared)
    assert re.search(r"train +20 +1 ", shown)
    assert re.search(r"label +int64 +2 classes: cat, dog", shown)
    told = json.loads(asked(capsys, "info", prepared, "--json"))
    assert told["splits"]["test"]["examples"] == 5
    first = json.loads(asked(capsys, "head", prepared, "-n", 1, "--json"))
    shown = asked(capsys, "head", prepared, "-n", 1)
    assert re.search(rf"label +int64 \(label\) +{('cat', 'dog')[first['label']]} \({first['label']}\)", shown)


def test_directories_of_tfds_in_a_store(
    prepared: Path, s3: str, s3_server: S3, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(prepared, s3_server.root / s3.removeprefix("s3://") / "toy")
    assert asked(capsys, "verify", f"{s3}/toy").count("whole") == 2
    assert re.search(r"train +20 +1 ", asked(capsys, "info", f"{s3}/toy"))
    assert "label" in asked(capsys, "head", f"{s3}/toy", "-n", 1)
    assert "expected a dataset, got no penstock.json" in asked(capsys, "info", f"{s3}/other", code=2)


def test_a_shard_that_lost_records_is_found_by_the_counts_of_tfds(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in prepared.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (shard,) = (path for path in tmp_path.glob("*-train.*-of-00001"))
    shard.with_name(shard.name + ".index").unlink(missing_ok=True)
    test = next(tmp_path.glob("*-test.*-of-00001"))
    shard.write_bytes(test.read_bytes())  # whole, but not what it should be
    assert "dataset_info.json says 20 records, the shard has 5" in asked(capsys, "verify", tmp_path, code=1)
    shard.unlink()
    assert "expected a shard of 20 records, got nothing" in asked(capsys, "verify", tmp_path, code=1)


def test_directories_of_datum(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "verify", exported).count("whole") == 2
    assert re.search(r"val +1 +1 ", asked(capsys, "info", exported))
    assert "image/png" in asked(capsys, "head", exported, "-n", 1)
    shard = exported / "train-00000-of-00001.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-3])
    assert "damaged" in asked(capsys, "verify", exported, code=1)


def test_folders_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        with ps.TFRecordWriter(tmp_path / f"part-{number}.tfrecord") as writer:
            writer.write_examples(ps.Codec({"x": "int64"}), [{"x": number}] * 3)
    assert asked(capsys, "verify", tmp_path).count("whole") == 2
    assert re.search(r"train +6 +2 ", asked(capsys, "info", tmp_path))
    assert [json.loads(line)["x"] for line in asked(capsys, "head", tmp_path, "--json").splitlines()] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("command", ["info", "head", "verify", "bench"])
def test_folders_that_are_no_dataset(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    expected = f"expected a dataset, or files (.tfrecord, .array_record, .tar), got neither - at {tmp_path / 'empty'}"
    assert expected in asked(capsys, command, tmp_path / "empty", code=2)
    ps.build([{"x": 1}], tmp_path / "data" / "toy")
    expected = f"got a folder of them - at {tmp_path / 'data'}. Take one: {tmp_path / 'data' / 'toy'}"
    assert expected in asked(capsys, command, tmp_path / "data", code=2)
    assert "expected a file or a folder, got nothing at" in asked(capsys, command, tmp_path / "nowhere", code=2)


def test_a_build_that_was_cut_off_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Any:
        yield from ({"x": n} for n in range(10))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.build(rows, tmp_path / "toy")
    with pytest.raises(ps.NotFoundError, match=r"whose build was cut off - at .*toy. Build it again: it goes on"):
        ps.load(tmp_path / "toy")
    for command in ("info", "head", "verify"):
        assert "whose build was cut off" in asked(capsys, command, tmp_path / "toy", code=2)


def test_messages_of_several_lines_keep_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1.xyz").write_bytes(b"")
    shown = asked(capsys, "build", tmp_path, tmp_path / "out", code=2)
    assert re.search(r"^  root/class/\*\.jpg, root/split/class/\*\.jpg +image_folder$", shown, re.MULTILINE)


def test_a_broken_image_says_how_to_go_on_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "photos" / "cat" / "1.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no image")
    shown = asked(capsys, "build", tmp_path / "photos", tmp_path / "out", code=1)
    assert "--on-error skip" in shown
    assert shown.splitlines()[-1].count(str(path)) == 1


def test_a_file_of_another_kind_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are no records, but words.\n" * 10)
    expected = "expected a TFRecord, ArrayRecord or tar file, got one that begins otherwise: another kind of file"
    for command in ("info", "head", "bench", "verify", "index"):
        said = asked(capsys, command, path, code=1)
        assert expected in said
        assert "damaged" not in said
        assert "salvage" not in said
    with pytest.raises(ps.CorruptionError, match=expected):
        ps.load(path)


def test_several_datasets_have_headings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        ps.build([{"x": 1}], tmp_path / name, info=ps.Info(name="other"))
    assert "other" not in asked(capsys, "info", tmp_path / "one")
    shown = asked(capsys, "info", tmp_path / "one", tmp_path / "nothing", tmp_path / "two", code=2).splitlines()
    assert [line for line in shown if line.startswith(str(tmp_path))] == [
        f"{tmp_path / name} (other)" for name in ("one", "two")
    ]
    assert shown[-1].startswith("penstock: error: expected a file or a folder, got nothing")


def test_head_shows_a_tar_as_load_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(3, dtype=np.int16))
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, data in (("0.cls", b"7"), ("0.npy", array.getvalue()), ("0.txt", b"hi"), ("1.cls", b"8")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    found = [json.loads(line) for line in asked(capsys, "head", tmp_path / "x.tar", "--json").splitlines()]
    assert found[0] == {"__key__": "0", "cls": 7, "npy": [0, 1, 2], "txt": "hi"}
    loaded = ps.load(tmp_path / "x.tar")["train"]
    for shown, example in zip(found, loaded, strict=True):
        assert shown == {name: np.asarray(value).tolist() for name, value in example.items()}
    assert re.search(r"cls +int64 +7", asked(capsys, "head", tmp_path / "x.tar"))
    assert re.search(r"cls +float32 +7", asked(capsys, "head", tmp_path / "x.tar", "--schema", "cls: float32"))
    assert "expected int64 in txt, got b'hi'" in asked(
        capsys, "head", tmp_path / "x.tar", "--schema", "txt: int64", code=1
    )


def test_head_shows_a_number_in_a_tar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ps.build([{"p": 1 / 3}], tmp_path / "dataset")
    ps.convert(tmp_path / "dataset", tmp_path / "t-{00..}.tar")
    assert re.search(r"npy +float64 +0.333333", asked(capsys, "head", tmp_path / "t-00.tar"))


@pytest.mark.parametrize(("name", "text"), [("bad.csv", "a,b\n1,2\n3,4,5\n"), ("bad.jsonl", '{"a": 1}\n{"a": \n')])
def test_bad_rows_are_damage_whatever_the_source(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    shown = asked(capsys, "build", tmp_path / name, tmp_path / "out", "--json", code=1)
    assert json.loads(shown.splitlines()[0])["file"] == str(tmp_path / name)
    assert "got Expecting" not in shown


def test_a_dataset_does_not_go_into_the_folder_of_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "photos" / "cat" / "1.gif"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GIF89a\x01\x00\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x00;")
    for folder, place in (
        (tmp_path, "photos/out"),
        (tmp_path / "photos", "out"),
        (tmp_path, "photos/x/{000..}.tfrecord"),
    ):
        monkeypatch.chdir(folder)
        shown = asked(capsys, "build", tmp_path / "photos", place, code=2)
        with pytest.raises(ps.SchemaError, match="expected a path outside of the images"):
            ps.build(ps.image_folder(tmp_path / "photos"), place)
        assert f"expected a path outside of the images, whose folders are classes - at {place}" in shown
    with pytest.raises(ps.SchemaError, match="expected a path outside of the images"):
        ps.build(ps.dedupe(ps.image_folder(tmp_path / "photos")), tmp_path / "photos")
    assert [entry.name for entry in (tmp_path / "photos").iterdir()] == ["cat"]
    asked(capsys, "build", tmp_path / "photos", tmp_path / "photos-built")


def test_plain_files_that_were_converted_are_told_as_a_dataset_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ps.build([{"x": 1}] * 3, tmp_path / "toy")
    shown = asked(capsys, "convert", tmp_path / "toy", tmp_path / "out-{split}-{000..}.tfrecord")
    assert "Dataset(" not in shown
    assert re.search(r"train +3 +1 ", shown)
    assert "1 file written" in shown
    assert len(eval(shown.splitlines()[-1], {"penstock": ps})) == 3  # noqa: S307  # the line that it shows
