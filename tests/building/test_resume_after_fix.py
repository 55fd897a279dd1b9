"""A build that failed on an example goes on when the example was mended or removed: nothing was published yet."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_datasets import contents

import penstock as ps
from penstock.cli import main
from penstock.dataset.manifest import WORK


class Files:
    """A number in each file of a folder."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> dict[str, int]:
        return {"x": int(self.paths[number].read_text())}

    def key(self, number: int) -> str:
        return self.paths[number].name

    def stamp(self, number: int) -> str:
        status = self.paths[number].stat()
        return f"{status.st_size} {status.st_mtime_ns}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for number in range(60):
        (tmp_path / "files" / f"{number:03}").write_text(str(number))
    (tmp_path / "files" / "055").write_text("bad")
    return tmp_path / "files"


OPTIONS: dict[str, Any] = {"order": "source", "workers": 1, "schema": {"x": "int64"}}


class Apart:
    """An engine whose workers are on other machines, as those of Ray are: tasks run by their descriptions alone."""

    remote = True
    progress = None
    processes = 2
    worker_memory = 1 << 28
    chunk_bytes = 1 << 20
    sync = True
    driver = ps.Local(workers=1)

    @contextmanager
    def start(self, destination: Path | str) -> Iterator[Apart]:
        yield self

    def map(self, function: Any, shared: Any, items: Any, progress: Any) -> Generator[Any, None, None]:
        for item in items:
            yield item, function(shared, item, progress)


@pytest.mark.parametrize("mend", ["mended", "removed", "another added"])
@pytest.mark.parametrize("place", ["directory", "s3"])
@pytest.mark.parametrize("engine", [ps.Local(workers=1), Apart()], ids=["local", "apart"])
def test_a_build_goes_on_with_other_examples(
    tmp_path: Path, folder: Path, mend: str, place: str, engine: Any, request: pytest.FixtureRequest
) -> None:
    target: Any = tmp_path / "toy" if place == "directory" else f"{request.getfixturevalue('s3')}/toy"
    options: dict[str, Any] = {"order": "source", "schema": {"x": "int64"}, "engine": engine}
    options["format"] = ps.TFRecord(shard_examples=10)
    with pytest.raises(ps.ExampleError, match="'055'"):
        ps.build(Files(folder), target, **options)
    (folder / "055").unlink()
    if mend == "mended":
        (folder / "055").write_text("55")
    if mend == "another added":
        (folder / "059b").write_text("1")
    built = ps.build(Files(folder), target, **options)
    assert built.kept == {"mended": 5, "removed": 3, "another added": 5}[mend]
    fresh = ps.build(Files(folder), tmp_path / "fresh" / "toy", **options)
    assert list(built["train"]) == list(fresh["train"])
    if place == "directory":
        assert contents(tmp_path / "toy") == contents(tmp_path / "fresh" / "toy")


def test_other_options_take_the_place_of_an_unfinished_build(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ps.ExampleError):
        ps.build(Files(folder), tmp_path / "toy", shards=6, **OPTIONS)
    text = {**OPTIONS, "schema": {"x": "int32"}}
    (folder / "055").unlink()
    built = ps.build(Files(folder), tmp_path / "toy", shards=6, **text)
    assert (built.kept, str(built.schema["x"])) == (0, "int32")
    ps.build(Files(folder), tmp_path / "fresh" / "toy", shards=6, **text)
    assert contents(tmp_path / "toy") == contents(tmp_path / "fresh" / "toy")


def test_changed_files_are_read_again(tmp_path: Path, folder: Path) -> None:
    """A finished shard counts only if its examples are the same."""
    with pytest.raises(ps.ExampleError):
        ps.build(Files(folder), tmp_path / "toy", shards=6, **OPTIONS)
    (folder / "003").write_text("1234")
    (folder / "055").unlink()
    built = ps.build(Files(folder), tmp_path / "toy", shards=6, **OPTIONS)
    assert 1234 in [example["x"] for example in built["train"]]
    assert len(built["train"]) == 59


def test_rows_without_stamps_are_written_again(tmp_path: Path) -> None:
    class Source:
        def __init__(self, values: list[Any]) -> None:
            self.values = values

        def __len__(self) -> int:
            return len(self.values)

        def __getitem__(self, number: int) -> dict[str, int]:
            return {"x": int(self.values[number])}

    with pytest.raises(ps.ExampleError):
        ps.build(Source([*range(39), "bad"]), tmp_path / "toy", shards=4, **OPTIONS)
    assert list((tmp_path / "toy" / WORK).glob("*.keys"))
    built = ps.build(Source(list(range(100, 139))), tmp_path / "toy", shards=4, **OPTIONS)
    assert (built.kept, [example["x"] for example in built["train"]]) == (0, list(range(100, 139)))


def test_a_published_dataset_is_protected(tmp_path: Path, folder: Path) -> None:
    (folder / "055").write_text("55")
    ps.build(Files(folder), tmp_path / "toy", shards=6, **OPTIONS)
    before = contents(tmp_path / "toy")
    (folder / "001").unlink()
    with pytest.raises(ps.BuildError, match="bring this dataset up to date, got another one"):
        ps.build(Files(folder), tmp_path / "toy", shards=6, **OPTIONS)
    assert contents(tmp_path / "toy") == before


@pytest.mark.parametrize("target", ["out", "out.tfrecord", "out-{000..}.tfrecord"])
def test_the_same_command_after_a_bad_image(tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    (tmp_path / "p" / "cat").mkdir(parents=True)
    for number in range(20):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(tmp_path / "p" / "cat" / f"{number}.png")
    (tmp_path / "p" / "cat" / "bad.png").write_bytes(b"no image")
    command = ["build", str(tmp_path / "p"), str(tmp_path / target), "-q"]
    assert main(command) == 1
    assert "bad.png" in capsys.readouterr().err
    (tmp_path / "p" / "cat" / "bad.png").unlink()
    assert main(command) == 0, capsys.readouterr().err
    assert len(ps.load(tmp_path / target)["train"]) == 20
