"""Numbered files of records: written by build and convert, named by a pattern that load takes too."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    ArrayRecord,
    ArrayRecordReader,
    CorruptionError,
    Field,
    NotFoundError,
    Ray,
    Schema,
    SchemaError,
    StorageError,
    TFRecord,
    TFRecordReader,
    TFRecordWriter,
    array_records,
    build,
    convert,
    load,
    split,
    splits,
    tfrecords,
)
from penstock.building.plan import cut_files
from penstock.building.targets.plain_files import quarantine_path
from penstock.cli import main
from penstock.records.index import sidecar_path

ROWS = [{"x": number, "text": "a" * (number % 7)} for number in range(100)]


def xs(dataset: object) -> list[int]:
    return [example["x"] for example in dataset]  # type: ignore[attr-defined]


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 60), st.integers(1, 10))
def test_files_take_what_fits(lengths: list[int], most_bytes: int, most_records: int) -> None:
    """As one would do it by hand: a file is full when the next record does not fit, and none is empty."""
    expected: list[list[int]] = []
    for length in lengths:
        room = expected and len(expected[-1]) < most_records and sum(expected[-1]) + length <= most_bytes
        if not room:
            expected.append([])
        expected[-1].append(length)
    cuts = cut_files(np.array(lengths, np.int64), most_bytes, most_records)
    found = [lengths[first:last] for first, last in itertools.pairwise(cuts)]
    assert found == (expected or [[]])


def test_a_build_into_numbered_files(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    built = build(ROWS, tmp_path / "part-{000..}.tfrecord", format=TFRecord(shard_examples=30), order="source")
    files = [f"{tmp_path}/part-{number:03}.tfrecord" for number in range(4)]
    assert [file.path for file in built.files] == files
    beside = [name for file in files for name in (os.path.basename(file), sidecar_path(file).name)]
    assert sorted(os.listdir(tmp_path)) == sorted([*beside, "part-N.tfrecord.schema.json"])
    assert [len(TFRecordReader(file)) for file in files] == [30, 30, 30, 10]
    assert sum(1 for _ in tf.data.TFRecordDataset(files)) == 100
    again = load(tmp_path / "part-{000..}.tfrecord")
    assert xs(again["train"]) == xs(built["train"]) == list(range(100))
    assert xs(load(tmp_path / "part-{002..}.tfrecord")["train"]) == list(range(60, 100))


TYPED = [{"label": "dog" if x % 2 else "cat", "small": x, "day": np.float64(x) / 3} for x in range(20)]
TYPES = {"label": Field(dtype="int64", classes=("cat", "dog")), "small": "uint8", "day": "float64"}


@pytest.mark.parametrize("name", ["{split}/{0..}.tfrecord", "{split}-{000..}.array_record", "{split}-2.record"])
def test_files_keep_their_schema_beside_them(tmp_path: Path, name: str) -> None:
    """Names of classes and small types are not in the records: they were lost to whoever opened such files."""
    source = splits(train=TYPED[:15], val=TYPED[15:])
    built = build(source, tmp_path / name, schema=TYPES, shards=None if "{0" not in name else 3)
    opened = load(tmp_path / name)
    assert opened.schema == built.schema == Schema(TYPES)
    assert next(iter(opened["val"].batch(5)))["small"].dtype == np.uint8
    files = [str(path) for path in tmp_path.rglob(f"*{Path(name).suffix}")]
    assert load(files).schema == load(files[-1]).schema == Schema(TYPES)  # any of them, by themselves
    assert load(files, schema={"small": "int64"}).schema == Schema({"small": "int64"})  # what is given comes first
    convert(tmp_path / name, tmp_path / "all-{split}.tfrecord")
    assert load(tmp_path / "all-{split}.tfrecord").schema == Schema(TYPES)
    assert tfrecords(tmp_path / "all-val.tfrecord").schema == Schema(TYPES)
    for path in tmp_path.rglob("*.schema.json"):
        path.unlink()
    assert load(tmp_path / name).schema != Schema(TYPES)


def test_the_schema_beside_is_that_of_the_files_that_are_there(tmp_path: Path) -> None:
    build(TYPED, tmp_path / "1.tfrecord", schema=TYPES)
    build(ROWS, tmp_path / "{0..}.tfrecord", shards=3, overwrite=True)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["N.tfrecord.schema.json"]
    assert list(load(tmp_path / "1.tfrecord").schema) == ["x", "text"]
    build(TYPED, tmp_path / "fold_0.tfrecord", schema=TYPES)
    build(ROWS, tmp_path / "fold_1.tfrecord")
    assert load(tmp_path / "fold_0.tfrecord").schema == Schema(TYPES)
    both = [tmp_path / "fold_0.tfrecord", tmp_path / "0.tfrecord"]
    with pytest.raises(SchemaError, match=r"got another than in .*fold_0.tfrecord.schema.json - at .*N.tfrecord"):
        load(both)
    assert list(load(both, schema={"x": "int64?"}).schema) == ["x"]
    (tmp_path / "N.tfrecord.schema.json").unlink()
    assert load(both).schema == Schema(TYPES)  # of some without: that of the others


@pytest.mark.parametrize("said", ["[]", '{"penstock_schema": 1, "fields": {"x": {"type": "int99"}}}', "{", ""])
def test_a_schema_beside_that_makes_no_sense(tmp_path: Path, said: str) -> None:
    build(ROWS, tmp_path / "{0..}.tfrecord")
    (tmp_path / "N.tfrecord.schema.json").write_text(said)
    with pytest.raises(CorruptionError, match=r"got .* - at .*N.tfrecord.schema.json"):
        load(tmp_path / "{0..}.tfrecord")
    assert len(load(tmp_path / "{0..}.tfrecord", schema={"x": "int64"})["train"]) == 100


@pytest.mark.parametrize("name", ["{split}-{00..}.tfrecord", "{split}.array_record", "{split}/{0..}.tfr"])
def test_splits_stay_apart_whoever_reads_them(tmp_path: Path, name: str) -> None:
    """A source of the same pattern once made one split of them all, and so did a folder: examples of test in train."""
    build(splits(train=ROWS[:70], test=ROWS[70:]), tmp_path / name)
    read = array_records if "array" in name else tfrecords
    assert {split: len(each) for split, each in read(tmp_path / name).items()} == {"train": 70, "test": 30}
    if "/" not in name:
        assert {split: len(each) for split, each in load(tmp_path).items()} == {"train": 70, "test": 30}
        assert {split: len(each) for split, each in read(tmp_path).items()} == {"train": 70, "test": 30}
    assert main(["build", "-q", str(tmp_path / name), str(tmp_path / "data")]) == 0
    assert {split: len(each) for split, each in load(tmp_path / "data").items()} == {"train": 70, "test": 30}
    one = tmp_path / name.replace("{split}", "train").replace("{00..}", "00").replace("{0..}", "0")
    assert len(split(read(one), train=0.5, test=0.5)) == 2  # one file alone has no splits yet


def test_names_with_brackets_are_names(tmp_path: Path) -> None:
    assert len(load(build(ROWS, tmp_path / "part [1].tfrecord").path)["train"]) == 100


def test_folders_of_any_ending_open(tmp_path: Path) -> None:
    for suffix in ("tfr", "record", "tfrec"):
        build(ROWS, tmp_path / suffix / f"{{0..}}.{suffix}")
        assert len(load(tmp_path / suffix)["train"]) == 100


def test_a_shard_that_is_missing_from_a_folder_is_an_error(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "train-00001-of-00003.tfrecord")
    for read in (load, tfrecords):
        with pytest.raises(NotFoundError, match=r"expected 3 shards, got 1, without train-00000-of-00003.tfrecord"):
            read(tmp_path)
    assert len(load(tmp_path / "train-00001-of-00003.tfrecord")["train"]) == 100  # which was asked for


def test_one_file_has_no_number_of_shards(tmp_path: Path) -> None:
    for write in (lambda **options: build(ROWS, tmp_path / "one.tfrecord", **options),
                  lambda **options: convert(tmp_path / "data", tmp_path / "one.tfrecord", **options)):  # fmt: skip
        build(ROWS, tmp_path / "data")
        with pytest.raises(SchemaError, match=r"expected one file, got a size or a number of files"):
            write(shards=3)
        write(shards=1, overwrite=True)


def test_names_tell_the_format_of_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(ROWS, tmp_path / "data")
    one = str(tmp_path / "one.array_record")
    assert main(["convert", "-q", str(tmp_path / "data"), one, "--compression", "brotli", "--group-size", "4"]) == 0
    assert main(["convert", "-q", str(tmp_path / "data"), one, "--compression", "gzip", "--overwrite"]) == 2
    assert "--compression goes with --format tfrecord here" in capsys.readouterr().err


def test_what_was_said_of_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    """A run that was told to overwrite, and killed: the next one is told so too, or leaves the files alone."""
    build(ROWS, tmp_path / "{0..}.tfrecord", shards=3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run = f"""
import os, penstock as ps
class Row(ps.Example):
    x: int
    def load(self):
        if self.x == 3: os.kill(parent, 9)
parent = os.getpid()
ps.build([Row(x=x) for x in range(4)], {str(tmp_path / "{0..}.tfrecord")!r}, overwrite=True)
"""
    assert subprocess.run([sys.executable, "-c", run]).returncode == -signal.SIGKILL
    with pytest.raises(StorageError, match=r"expected a new file, got one that is there"):
        build(ROWS, tmp_path / "{0..}.tfrecord", shards=3)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    build(ROWS, tmp_path / "{0..}.tfrecord", shards=3, overwrite=True)
    assert not list(tmp_path.glob(".*"))


STOPPED = """
import os, signal, sys, penstock as ps
class Row(ps.Example):
    x: int
    def load(self):
        if self.x == 3: os.kill(parent, getattr(signal, sys.argv[2]))
parent = os.getpid()
ps.build([Row(x=x) for x in range(4)], sys.argv[1])
"""


@pytest.mark.alone
def test_messages_name_the_files_and_not_the_folder_in_which_they_are_built(tmp_path: Path) -> None:
    pattern = str(tmp_path / "{0..}.tfrecord")
    run = [sys.executable, "-c", STOPPED, pattern]
    done = subprocess.run([*run, "SIGINT"], capture_output=True, text=True)
    assert f"KeyboardInterrupt: stopped: build again to go on - at {pattern}" in done.stderr
    assert subprocess.run([*run, "SIGKILL"]).returncode == -signal.SIGKILL
    assert len(build(ROWS, pattern)["train"]) == 100  # nothing was published: another build takes its place


def test_sizes_are_those_that_were_asked_for(tmp_path: Path) -> None:
    build([{"x": b"." * 1000} for _ in range(10)], tmp_path / "{0..}.tfr", format=TFRecord(shard_bytes=2500))
    assert [len(TFRecordReader(tmp_path / f"{number}.tfr")) for number in range(5)] == [2] * 5
    assert not (tmp_path / "5.tfr").exists()
    convert(tmp_path / "{0..}.tfr", tmp_path / "few-{1..}.array_record", shards=3)
    assert [len(ArrayRecordReader(tmp_path / f"few-{number}.array_record")) for number in (1, 2, 3)] == [3, 4, 3]


def test_splits_have_folders_of_their_own(tmp_path: Path) -> None:
    source = splits(train=ROWS[:70], val=ROWS[70:])
    pattern = tmp_path / "out" / "{split}" / "{0..}.tfrecord"
    built = build(source, pattern, shards=2)
    assert [file.path for file in built.files] == [
        f"{tmp_path}/out/{split}/{number}.tfrecord" for split in ("train", "val") for number in range(2)
    ]
    assert (len(built["train"]), len(built["val"])) == (70, 30)
    assert sorted(xs(load(tmp_path / "out/val/{0..}.tfrecord")["train"])) == list(range(70, 100))
    assert main(["verify", str(pattern)]) == 0
    assert built.manifest.name == "out"
    again = load(pattern)  # the same words open them
    assert list(again) == ["train", "val"]
    assert sorted(xs(again["val"])) == list(range(70, 100))
    assert sorted(os.listdir(tmp_path / "out")) == ["train", "val"]  # the folder in which it was built is gone
    with pytest.raises(SchemaError, match=r"expected one split, got train, val.*out-\{split\}-\{00000..\}.tfrecord"):
        build(source, tmp_path / "{0..}.tfrecord")


def test_what_is_there_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    pattern = tmp_path / "{0..}.tfrecord"
    build(ROWS, pattern, shards=5)
    with pytest.raises(StorageError, match=r"expected a new file, got one that is there - at .*/0.tfrecord.*overwrite"):
        build(ROWS, pattern, shards=2)
    build(ROWS[:10], pattern, shards=2, overwrite=True)
    assert sorted(path.name for path in tmp_path.glob("*.tfrecord")) == ["0.tfrecord", "1.tfrecord"]
    assert sorted(xs(load(pattern)["train"])) == list(range(10))
    build(ROWS, tmp_path / "data")
    with pytest.raises(StorageError, match=r"expected a new file, got one that is there - at .*/1.tfrecord"):
        convert(tmp_path / "data", tmp_path / "{1..}.tfrecord")


def test_convert_keeps_records_and_order(tmp_path: Path) -> None:
    built = build(ROWS, tmp_path / "data", shards=3)
    convert(tmp_path / "data", tmp_path / "one.array_record", format=ArrayRecord(group_size=4))
    convert(tmp_path / "data", tmp_path / "{00..}.tfrecord", format=TFRecord(compression="gzip", shard_examples=40))
    expected = [record for file in built.files for record in TFRecordReader(file.path)]
    assert list(ArrayRecordReader(tmp_path / "one.array_record")) == expected
    files = [TFRecordReader(tmp_path / f"{number:02}.tfrecord") for number in range(3)]
    assert [record for file in files for record in file] == expected
    assert files[0].compression == "gzip"


def test_what_is_not_the_same_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(ROWS, tmp_path / "data")
    wrong = TFRecordWriter.write_records
    monkeypatch.setattr(TFRecordWriter, "write_records", lambda self, records: wrong(self, [*records][::-1]))
    with pytest.raises(CorruptionError, match=r"got another one.*0.tfrecord, record 0"):
        convert(tmp_path / "data", tmp_path / "{0..}.tfrecord", workers=1)
    assert not (tmp_path / "0.tfrecord").exists()


@pytest.mark.parametrize("suffix", ["tfrecord", "tar"])
def test_the_source_is_never_written_over(tmp_path: Path, suffix: str) -> None:
    """Not even by a name that comes up later: the files after it would be those that are read."""
    build(ROWS, tmp_path / "data")
    convert(tmp_path / "data", tmp_path / f"{{5..}}.{suffix}", shards=4)
    before = {path.name: path.read_bytes() for path in tmp_path.glob(f"*.{suffix}")}
    (tmp_path / "link").symlink_to(tmp_path)
    for pattern in (f"{{0..}}.{suffix}", f"{{split}}.{suffix}", f"link/{{5..}}.{suffix}"):
        with pytest.raises(SchemaError, match="expected other files to write, got those of the source"):
            convert(tmp_path / f"{{5..}}.{suffix}", tmp_path / pattern, overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.glob(f"*.{suffix}")} == before


def test_files_get_their_names_when_all_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(ROWS[:20], tmp_path / "{0..}.tfrecord", shards=4)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / ".7.tfrecord.new").write_bytes(b"of a run that was killed")
    (tmp_path / "..8.tfrecord.new.17457-58.partial").write_bytes(b"another of its files")
    written = TFRecordWriter.close

    def fail_late(self: TFRecordWriter) -> None:
        if self.path.name == ".3.tfrecord.new":
            raise OSError("no space left")
        written(self)

    with monkeypatch.context() as patch:
        patch.setattr(TFRecordWriter, "close", fail_late)
        build(ROWS, tmp_path / "data")
        with pytest.raises(OSError, match="no space left"):
            convert(tmp_path / "data", tmp_path / "{0..}.tfrecord", shards=4, overwrite=True)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert {name: data for name, data in left.items() if not name.startswith(".")} == before
    convert(tmp_path / "data", tmp_path / "{0..}.tfrecord", shards=4, overwrite=True)
    assert len(load(tmp_path / "{0..}.tfrecord")["train"]) == 100
    assert not list(tmp_path.glob(".*"))


def test_any_file_that_a_pattern_would_take_in_is_an_error(tmp_path: Path) -> None:
    """Whatever its number: it would be read as one of them, or taken away."""
    for number in (3, 5):
        build(ROWS[:5], tmp_path / f"{number}.tfrecord")
    build(ROWS, tmp_path / "data")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.tfrecord")}
    for call in (lambda: build(ROWS, tmp_path / "{0..}.tfrecord", shards=3),
                 lambda: convert(tmp_path / "data", tmp_path / "{0..}.tfrecord", shards=3)):  # fmt: skip
        with pytest.raises(StorageError, match=r"expected a new file, got one that is there - at .*/3.tfrecord"):
            call()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.tfrecord")} == before
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_is_missing_is_not_the_end(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "{0..}.tfrecord", shards=4)
    (tmp_path / "1.tfrecord").unlink()
    with pytest.raises(StorageError, match=r"got no .*/1.tfrecord, but .*/2.tfrecord - at"):
        load(tmp_path / "{0..}.tfrecord")


def test_a_build_does_not_write_over_its_source(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "{2..}.tfrecord", shards=2)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.tfrecord")}
    for source in (tfrecords(f"{tmp_path}/*.tfrecord"), load(tmp_path / "{2..}.tfrecord")["train"]):
        with pytest.raises(SchemaError, match="expected other files to write, got those of the source"):
            build(source, tmp_path / "{0..}.tfrecord", overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.tfrecord")} == before
    assert len(build(load(tmp_path / "{2..}.tfrecord")["train"], tmp_path / "data")["train"]) == 100  # without keys


class Odd:
    """One example in ten is bad."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> dict[str, int]:
        if index % 10 == 7:
            raise ValueError(f"no example {index}")
        return {"x": index}


def test_what_a_build_tells_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = build(Odd(), tmp_path / "{0..}.tfrecord", on_error="quarantine", shards=2, order="source")
    assert (built.written, built.kept, built.bad) == (2, 0, 3)
    assert repr(built).endswith("train 27 in 2, 3 bad)")
    (kept,) = tmp_path.glob("*.jsonl")
    assert kept == Path(quarantine_path(str(tmp_path / "{0..}.tfrecord")))
    assert [json.loads(line)["key"] for line in kept.read_text().splitlines()] == ["7", "17", "27"]
    build(ROWS, tmp_path / "{0..}.tfrecord", overwrite=True)
    assert not kept.exists()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    command = ["build", f"{tmp_path}/rows.jsonl", f"{tmp_path}/part-{{0..}}.array_record", "--shard-examples", "60"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["written"], told["splits"]["train"]["shards"]) == (2, 2)


def test_two_builds_at_once(tmp_path: Path) -> None:
    code = """if True:
        import sys, penstock as ps
        try:
            ps.build([{"x": n} for n in range(20000)], sys.argv[1], overwrite=True)
        except ps.BuildError as error:
            assert "expected to build here alone" in str(error), error
    """
    run = [sys.executable, "-c", code, f"{tmp_path}/{{0..}}.tfrecord"]
    both = [subprocess.Popen(run) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(load(tmp_path / "{0..}.tfrecord")["train"]) == 20000
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{spilt}-{0..}.tfrecord", r"expected \{split\} and a number such as \{000..\} in braces, once each"),
        ("{00..}-{0..}.tfrecord", "once each"),
        ("{00..03}.tfrecord", "once each"),
        ("{0..}.bin", r"expected a folder, or names of files that end in .record, .*, got others"),
        ("all.tfrecord.gz", "expected a folder, or names of files"),
        ("all.zip", "expected a folder, or names of files"),
        ("w-*.tfrecord", r"expected names of files to write, got a glob - at .*Number them: .*w-\{000..\}.tfrecord"),
        ("{0..}.tfrecord.gz", "compression= says how"),
        ("{split}", "or names of files"),
        ("{0..}/x.tfrecord", "expected numbers in the names of files, got them in a folder's"),
    ],
)
def test_names_that_nobody_meant(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises((SchemaError, StorageError), match=message):
        build(ROWS, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_size_is_that_of_a_file(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "{0..}.TFRecord", format=TFRecord(shard_bytes=500))
    files = list(tmp_path.glob("*.TFRecord"))
    assert max(file.stat().st_size for file in files) <= 500
    assert sum(file.stat().st_size for file in files) > 400 * len(files)
    with pytest.raises(
        SchemaError, match=r"expected one file, got a size or a number.*Number them: one-\{000..\}.tfrecord"
    ):
        build(ROWS, tmp_path / "one.tfrecord", format=TFRecord(shard_examples=10))
    (tmp_path / "0.tfrec").mkdir()
    with pytest.raises(StorageError, match=r"expected a file, or nothing, got a folder - at .*/0.tfrec. Take it away"):
        build(ROWS, tmp_path / "{0..}.tfrec", overwrite=True)


KILLED = """
import os, signal, sys
import numpy as np
import penstock as ps

class Item(ps.Example):
    name: ps.Skip[str]
    x: int
    def load(self):
        if sys.argv[2] == "kill" and self.name == "40":
            os.kill(os.getppid() if os.getpid() != FIRST else FIRST, signal.SIGKILL)
        with open(sys.argv[3], "a") as file:
            file.write(self.name + "\\n")

FIRST = os.getpid()
items = [Item(name=str(n), x=n) for n in range(100)]
ps.build(items, sys.argv[1], format=ps.TFRecord(shard_examples=30), order="source", workers=1, schema=Item.schema())
"""


def test_a_build_that_was_killed_goes_on(tmp_path: Path) -> None:
    pattern, log = f"{tmp_path}/out/{{0..}}.tfrecord", tmp_path / "log"
    run = [sys.executable, "-c", KILLED, pattern]
    killed = subprocess.run([*run, "kill", str(log)])
    assert killed.returncode == -signal.SIGKILL
    assert not list((tmp_path / "out").glob("*.tfrecord"))
    before = log.read_text().split()
    subprocess.run([*run, "go on", str(log)], check=True)
    again = log.read_text().split()[len(before) :]
    assert len(again) < 70  # what was done is not done again
    assert xs(load(pattern)["train"]) == list(range(100))
    assert not list((tmp_path / "out").glob(".*.build"))


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("x\n" + "".join(f"{number}\n" for number in range(10)))
    pattern = f"{tmp_path}/part-{{0..}}.tfrecord"
    assert main(["build", f"{tmp_path}/rows.csv", pattern, "--shard-examples", "4"]) == 0
    assert f"penstock.load({pattern!r})" in capsys.readouterr().out
    assert main(["info", pattern, "--json"]) == 0
    assert [json.loads(line)["records"] for line in capsys.readouterr().out.splitlines()] == [4, 4, 2]
    assert main(["convert", pattern, f"{tmp_path}/again-{{0..}}.tfrecord", "--shards", "2", "--json"]) == 0
    assert [Path(file).name for file in json.loads(capsys.readouterr().out)["files"]] == [
        "again-0.tfrecord",
        "again-1.tfrecord",
    ]
    assert main(["head", f"{tmp_path}/none-{{0..}}.tfrecord"]) == 2
    assert f"expected files, got no {tmp_path}/none-0.tfrecord" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": ["tfrecord", "array_record"]}, "expected one format for files, got several"),
        ({"format": ArrayRecord()}, r"expected TFRecord\(...\) for such files, got ArrayRecord"),
        ({"engine": Ray("auto")}, "expected files to be written by this machine, got another engine"),
    ],
)
def test_what_cannot_be_asked_of_files(tmp_path: Path, options: dict[str, object], message: str) -> None:
    build(ROWS, tmp_path / "data")
    with pytest.raises(SchemaError, match=message):
        convert(tmp_path / "data", tmp_path / "{0..}.tfrecord", **options)  # type: ignore[arg-type]


def test_a_web_server_has_no_numbers_without_an_end() -> None:
    for reach in (load, lambda url: build(ROWS, url)):
        with pytest.raises(StorageError, match="expected a store that lists its objects, got a web server"):
            reach("http://localhost:1/part-{000..}.tfrecord")


def test_the_command_line_knows_the_schema_beside_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(TYPED, tmp_path / "files" / "{0..}.tfrecord", schema=TYPES, order="source")
    one = str(tmp_path / "files" / "0.tfrecord")
    for command in (["head", "-n", "1", one], ["info", one], ["head", "-n", "1", str(tmp_path / "files")]):
        assert main(command) == 0
        assert "float64" in (said := capsys.readouterr().out)
        assert "as the first records show it" not in said
    assert main(["info", str(tmp_path / "files" / "*")]) == 0  # what stands beside files is none of them
    with open(one, "r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"\0\0\0")
    assert main(["salvage", one, str(tmp_path / "saved.tfrecord")]) == 1
    assert load(tmp_path / "saved.tfrecord").schema == Schema(TYPES)
    (tmp_path / "files" / "N.tfrecord.schema.json").write_text("{")
    assert main(["verify", one]) == 1
    assert "N.tfrecord.schema.json. Delete the file, or say" in capsys.readouterr().out


def test_verify_looks_at_files_of_all_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a folder with several, the others were passed over; a tar was refused once it had an index."""
    build(ROWS, tmp_path / "data")
    for name in ("a.tfrecord", "b.array_record", "c-{0..}.tar"):
        convert(tmp_path / "data", tmp_path / "mixed" / name)
    load(tmp_path / "mixed" / "c-0.tar")
    assert main(["verify", str(tmp_path / "mixed")]) == 0
    assert capsys.readouterr().out.count("whole") == 3
    os.truncate(tmp_path / "mixed" / "b.array_record", 100)
    assert main(["verify", "-q", str(tmp_path / "mixed")]) == 1
    assert "b.array_record" in capsys.readouterr().out


def test_a_folder_of_tars_is_shown_as_it_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(ROWS, tmp_path / "data")
    convert(tmp_path / "data", tmp_path / "tars" / "c-{0..}.tar")
    for command in (["info", str(tmp_path / "tars")], ["head", "-n", "1", str(tmp_path / "tars")]):
        assert main(command) == 0
        assert "int64" in capsys.readouterr().out
