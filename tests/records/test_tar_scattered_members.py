"""Tars whose files of one sample are not next to each other, as plain `tar czf` writes them."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import S3
from tests.support.tar_files import Members, sample, write_tar

from penstock import CorruptionError, PenstockError, build, load, tar
from penstock._core import Index, Shard
from penstock.cli import main
from penstock.records.index import sidecar_path
from penstock.records.shard import verify
from penstock.records.tfrecord import salvage_records

SAMPLES = 40
MODES = ["w", "w:gz", "w:bz2", "w:xz"]


def scattered(count: int = SAMPLES) -> list[tuple[str, bytes]]:
    """The files of some samples in any order, with folders, hidden files and others between them."""
    members = [member for number in range(count) for member in sample(number)]
    random.Random(7).shuffle(members)
    return [*members[:9], ("d/.hidden.jpg", b"-"), ("d/README", b"-"), *members[9:]]


def by_extension(count: int = SAMPLES) -> list[tuple[str, bytes]]:
    """All files of one extension, then all of the next one."""
    return sorted((member for number in range(count) for member in sample(number)), key=lambda m: m[0].split(".", 1)[1])


def grouped(members: Members) -> dict[str, dict[str, bytes]]:
    """The samples of some members, in the order of their first files."""
    samples: dict[str, dict[str, bytes]] = {}
    for name, data in members:
        key, _, extension = name.partition(".")
        if extension and not key.endswith("/"):
            samples.setdefault(key, {})[extension] = data
    return samples


def raw(path: Any) -> dict[str, dict[str, bytes]]:
    """What `load` reads, undecoded."""
    found = load(path, decode=False)["train"]
    return {
        each["__key__"]: {name: each[name] for name in each if name != "__key__" and each[name] is not None}
        for each in found
    }


@pytest.mark.parametrize("members", [scattered(), by_extension()], ids=["shuffled", "by extension"])
@pytest.mark.parametrize("mode", MODES)
def test_load_groups_by_key_in_the_order_of_first_appearance(
    tmp_path: Path, mode: str, members: list[tuple[str, bytes]]
) -> None:
    path = write_tar(tmp_path / "a.tar", members, mode=mode)
    for _ in range(2):  # scanned, then by the index
        found, expected = raw(path), grouped(members)
        assert found == expected
        assert list(found) == list(expected)
    dataset = load(path)
    assert dataset.schema["npy"].dtype == "float32"
    for example in dataset["train"].shuffle(seed=3):
        number = int(example["__key__"].removeprefix("d/"))
        assert (example["cls"], example["txt"]) == (number, f"número {number}")
        np.testing.assert_array_equal(example["npy"], np.arange(6, dtype=np.float32).reshape(2, 3) + number)
    total = sum(int(batch["cls"].sum()) for batch in dataset["train"].batch(7))
    assert total == sum(range(SAMPLES))


def test_what_plain_tar_makes(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for number in range(60):
        (folder / f"{number}.cls").write_text(f"{number}\n")
    for number in range(60):
        (folder / f"{number}.txt").write_text("a")
    path = tmp_path / "t-0.tar.gz"
    subprocess.run(["tar", "czf", path, "-C", tmp_path, "d"], check=True)
    assert sorted(example["cls"] for example in load(path)["train"]) == list(range(60))
    assert len(tar(path)) == 60


def test_a_build_is_the_one_of_a_sorted_tar(tmp_path: Path) -> None:
    members = scattered()
    data = dict(members)
    ordered = [(f"{key}.{ext}", data[f"{key}.{ext}"]) for key, files in grouped(members).items() for ext in files]
    random_order = write_tar(tmp_path / "train-0.tar", members)
    (tmp_path / "sorted").mkdir()
    sorted_order = write_tar(tmp_path / "sorted" / "train-0.tar", ordered)
    one = build(tar(random_order), tmp_path / "one", workers=2)
    other = build(tar(sorted_order), tmp_path / "other", workers=1)
    for found, expected in zip(one["train"], other["train"], strict=True):
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("mode", MODES)
def test_every_truncation_is_an_error(tmp_path: Path, mode: str) -> None:
    path = write_tar(tmp_path / "a.tar", scattered(6), mode=mode)
    whole = path.read_bytes()
    end = len(whole) if mode != "w" else whole.rstrip(b"\0").__len__()
    for length in range(0, end, max(1, end // 50)):
        path.write_bytes(whole[:length])
        sidecar_path(path).unlink(missing_ok=True)
        with pytest.raises(CorruptionError):
            load(path)
        with pytest.raises(CorruptionError):
            tar(path)


def test_a_file_of_a_sample_twice_is_an_error(tmp_path: Path) -> None:
    for last in ("a.txt", "a.TXT"):
        members = [("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3"), (last, b"4")]
        with pytest.raises(CorruptionError, match=f'another one: "{last}".*offset 3072'):
            load(write_tar(tmp_path / "a.tar", members))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_the_index_is_versioned_and_checked(tmp_path: Path, mode: str) -> None:
    path = write_tar(tmp_path / "a.tar", scattered(), mode=mode)
    load(path)
    sidecar = sidecar_path(path)
    assert sidecar.read_bytes()[8:12] == (2).to_bytes(4, "little")
    assert len(Index.read(sidecar)) == SAMPLES
    assert len(Shard(path, sidecar, True)) == SAMPLES
    report = verify(path)
    assert report.whole, report
    plain = write_tar(tmp_path / "b.tar", [member for number in range(3) for member in sample(number)], mode=mode)
    load(plain)
    assert sidecar_path(plain).read_bytes()[8:12] == (1).to_bytes(4, "little")
    # An index of another tar of the same size is not believed.
    if mode == "w":
        members = scattered()
        other = write_tar(tmp_path / "c.tar", [*members[1:], members[0]])
        assert other.stat().st_size == path.stat().st_size
        shutil.copy(sidecar, sidecar_path(other))
        assert raw(other) == grouped([*members[1:], members[0]])


def test_every_flipped_bit_of_an_index_is_found(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3")])
    load(path)
    sidecar = sidecar_path(path)
    whole = sidecar.read_bytes()
    for bit in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        sidecar.write_bytes(changed)
        with pytest.raises(PenstockError):
            Index.read(sidecar)
    for length in range(len(whole)):
        sidecar.write_bytes(whole[:length])
        with pytest.raises(PenstockError):
            Index.read(sidecar)


def test_an_index_does_not_hide_that_a_tar_grew(tmp_path: Path) -> None:
    members = [("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3")]
    for name in ("b.cls", "a.seg", "c.txt"):  # another sample, that of the last file, and a new one
        path = write_tar(tmp_path / "a.tar", members)
        size = path.stat().st_size
        sidecar_path(path).unlink(missing_ok=True)
        assert raw(path) == {"a": {"txt": b"1", "cls": b"3"}, "b": {"txt": b"2"}}
        grown = write_tar(path, [*members, (name, b"4")])
        assert grown.stat().st_size == size
        assert raw(path) == grouped([*members, (name, b"4")])


def test_salvage_keeps_the_samples_that_are_whole(tmp_path: Path) -> None:
    members = scattered()
    for mode in ("w", "w:gz"):
        path = write_tar(tmp_path / "a.tar", members, mode=mode)
        report = salvage_records(path, tmp_path / "all.tfrecord")
        assert (report.records, report.gaps) == (SAMPLES, ())
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) * 9 // 10])
        report = salvage_records(path, tmp_path / "some.tfrecord")
        assert 0 < report.records < SAMPLES
        assert any("lacks" in gap.reason for gap in report.gaps), report.gaps
        kept = list(load(tmp_path / "some.tfrecord", schema=dict.fromkeys(EXTENSIONS, "bytes"))["train"])
        assert len(kept) == report.records
        for example in kept:
            key = example["__key__"].decode()
            assert {name: example[name] for name in EXTENSIONS if name != "__key__"} == grouped(members)[key]
        assert not verify(path).whole


EXTENSIONS = ["__key__", "jpg", "cls", "txt", "json", "npy", "raw.bin"]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tar(tmp_path / "a.tar.gz", by_extension(), mode="w:gz")
    assert main(["head", str(path), "-n", "1"]) == 0
    shown = capsys.readouterr().out
    assert "número 0" in shown
    assert "npy" in shown
    assert main(["info", str(path)]) == 0
    assert "40" in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert main(["build", str(path), str(tmp_path / "out")]) == 0
    assert len(load(tmp_path / "out")["train"]) == SAMPLES


def test_of_a_store(tmp_path: Path, s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = s3_server.root / s3.removeprefix("s3://")
    members = scattered()
    write_tar(folder / "t-0.tar.gz", members, mode="w:gz")
    write_tar(folder / "t-1.tar", members)
    expected = grouped(members)
    assert raw(f"{s3}/t-0.tar.gz") == raw(f"{s3}/t-1.tar") == expected
    built = build(tar(f"{s3}/t-{{0..1}}.tar*"), tmp_path / "out", workers=2)
    assert len(built["train"]) == 2 * SAMPLES


def test_a_large_compressed_tar_is_spooled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 MB once inflated: every sample has a file at the front and one at the back."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    count, size = 60, 5 << 20
    members = [(f"{n:03}.bin", n.to_bytes(1, "little") * size) for n in range(count)]
    members += [(f"{n:03}.cls", str(n).encode()) for n in range(count)]
    path = write_tar(tmp_path / "a.tar.gz", members, mode="w:gz")
    seen = [(example["cls"], example["bin"][0], len(example["bin"])) for example in load(path)["train"]]
    assert seen == [(n, n, size) for n in range(count)]
    built = build(tar(path), tmp_path / "out", workers=1)
    assert len(built["train"]) == count
    assert [name.name for name in tmp_path.glob(".penstock*")] == [], "the spool has no name"


class Elsewhere:
    """An engine that runs the function here."""

    def call(self, function: Any, items: Any) -> list[Any]:
        return [function(item) for item in items]


def test_an_engine_lists_the_tars(tmp_path: Path) -> None:
    first = write_tar(tmp_path / "train-0.tar", scattered(6))
    second = write_tar(tmp_path / "train-1.tar.gz", [("x.cls", b"9"), ("x.npy", sample(0)[4][1])], mode="w:gz")
    here = tar([first, second])["train"]  # type: ignore[index]
    there = tar([first, second], engine=Elsewhere())["train"]  # type: ignore[index]
    assert there.schema == here.schema
    assert there.all_keys() == here.all_keys()
    assert there.nbytes == first.stat().st_size + 2048
    one, other = (build(source, tmp_path / name, workers=1) for source, name in ((here, "here"), (there, "there")))
    assert [example["cls"] for example in one["train"]] == [example["cls"] for example in other["train"]]
