"""What a build does with files that it cannot read: it names the file, what it is, and what to do."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock
from penstock import CorruptionError, SchemaError, StorageError
from penstock.cli import main

HEIC = b"\0\0\0\x18ftypheic" + bytes(50)


def picture(number: int, format: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.frombytes("RGB", (4, 3), random.Random(number).randbytes(36)).save(buffer, format)
    return buffer.getvalue()


def build(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["build", *words]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six images of two classes, and room for one that is odd."""
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        path = tmp_path / "photos" / ("cat" if number % 2 else "dog") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("x.heic", HEIC, "a HEIC image"),
        ("x.jpg", HEIC, "a HEIC image"),
        ("x.avif", b"\0\0\0\x18ftypavif" + bytes(50), "an AVIF image"),
        ("x.jxl", b"\xff\x0a" + bytes(50), "a JPEG XL image"),
        ("x.jp2", b"\0\0\0\x0cjP  " + bytes(50), "a JPEG 2000 image"),
        ("x.tif", b"II*\0 cut off", None),
        ("x.jpg", b"", "an empty file"),
        ("x.jpg", b"hello, this is a text", "text that begins with 'hello, this is a tex'"),
        ("x.png", b"<!DOCTYPE html><html>404", "an HTML page"),
        ("x.jpg", b"version https://git-lfs.github.com/spec/v1\noid", "a pointer of Git LFS"),
        ("x.jpg", picture(1)[:40], None),
        ("x.jpg", b"\x00\x01\x02\x03\x04\x05\x06\x07", "bytes of no known format"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("resize", [False, True], ids=["", "resized"])
def test_one_file_that_is_no_image_stops_only_a_strict_build(
    photos: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, kind: str | None, resize: bool
) -> None:
    (photos / "cat" / name).write_bytes(data)
    more = ["--max-side", "4"] if resize else []
    error = build(capsys, "photos", "out", *more, code=1)
    assert f"photos/cat/{name}" in error
    assert kind is None or f"got {kind}" in error
    assert "--on-error skip" in error
    out = build(capsys, "photos", "skipped", "--on-error", "skip", *more)
    assert "1 bad example was left out" in out
    assert f"train['cat/{name}']: " in out
    assert len(penstock.load("skipped")["train"]) == 6
    found = json.loads(build(capsys, "photos", "kept", "--on-error", "quarantine", "--json", *more))
    assert (found["bad"], [entry["key"] for entry in found["bad_examples"]]) == (1, [f"cat/{name}"])
    assert f"cat/{name}" in Path("kept/quarantine.jsonl").read_text()
    built = penstock.build(penstock.image_folder("photos"), "python", on_error="skip")
    assert [entry["place"] for entry in built.bad_examples] == [f"photos/cat/{name}"]


def test_files_that_cannot_be_opened_stop_only_a_strict_build(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "cat" / "gone.jpg").symlink_to("nowhere")
    (photos / "cat" / "loop.jpg").symlink_to("loop.jpg")
    os.mkfifo(photos / "cat" / "pipe.jpg")
    if os.geteuid():
        (photos / "cat" / "mine.jpg").write_bytes(picture(9))
        (photos / "cat" / "mine.jpg").chmod(0)
    error = build(capsys, "photos", "out", code=1)
    assert "photos/cat/" in error
    out = build(capsys, "photos", "out", "--on-error", "skip", "--overwrite")
    assert f"{4 if os.geteuid() else 3} bad examples were left out" in out
    assert len(penstock.load("out")["train"]) == 6
    source: Any = penstock.image_folder("photos")
    for name in ("gone", "loop", "pipe"):
        row = source.names.index(f"cat/{name}.jpg")
        with pytest.raises(StorageError, match=rf"photos/cat/{name}\.jpg"):
            source[row]


# CSV


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("order", ["le", "be"])
def test_text_with_a_byte_order_mark_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str, order: str
) -> None:
    text = "name,x\n" + "".join(f"café {n} 😀,{n}\n" for n in range(1000))
    given = encoding if encoding == "utf-8-sig" else f"{encoding}-{order}"
    data = text.encode(given) if encoding == "utf-8-sig" else ("\ufeff" + text).encode(given)
    (tmp_path / "rows.csv").write_bytes(data)
    build(capsys, str(tmp_path / "rows.csv"), str(tmp_path / "out"))
    rows = penstock.csv(tmp_path / "rows.csv")
    assert len(rows) == 1000
    assert rows[7] == {"name": "café 7 😀", "x": 7}  # type: ignore[index]
    assert rows.place(7).endswith("rows.csv:9")  # type: ignore[union-attr]
    (tmp_path / "rows.json").write_bytes(("\ufeff" + '[{"a": "é"}]').encode(given.replace("-sig", "")))
    assert penstock.json(tmp_path / "rows.json")[0] == {"a": "é"}  # type: ignore[index]


def test_damage_in_utf_16_names_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("\ufeffa,b\n1,2\n3\n".encode("utf-16-le"))
    with pytest.raises(CorruptionError, match=rf"{path}:3"):
        penstock.csv(path)
    path.write_bytes("\ufeffa,b\n1,2\n".encode("utf-16-le")[:-1])
    with pytest.raises(CorruptionError, match=rf"expected UTF-16 text, got .*Save the file as UTF-8 - at {path}"):
        penstock.csv(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a,b\n1,x\n2,café\n".encode("latin-1"), r"0xe9, which is 'é' in Windows-1252.*iconv.*rows\.csv:3$"),
        ("a,“b”\n1,x\n".encode("cp1252"), r"0x93, which is '“' in Windows-1252.*rows\.csv:1$"),
        ("a,b\n1,x\n2,y\n".encode("utf-16-le"), r"got UTF-16 without a byte order mark\. Save the file as UTF-8"),
        ("a,b\n1,x\n2,y\n".encode("utf-32-be"), r"got UTF-32 without a byte order mark"),
        (bytes(100), "got zeros"),
    ],
)
def test_other_encodings_are_named(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "rows.csv").write_bytes(data)
    with pytest.raises(CorruptionError, match=message):
        penstock.csv(tmp_path / "rows.csv")


@pytest.mark.parametrize("header", ["ID3,name", "BZh", "GIF8", "%PDF", "PAR1,PAR2"])
def test_a_header_may_begin_as_other_files_do(tmp_path: Path, header: str) -> None:
    (tmp_path / "rows.csv").write_text(f"{header}\n{header}\n")
    assert len(penstock.csv(tmp_path / "rows.csv")) == 1


def test_json_lines_in_utf_16_have_a_reason(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes('\ufeff{"a": 1}\n'.encode("utf-16-le"))
    with pytest.raises(CorruptionError, match=r"expected JSON lines in UTF-8, got UTF-16\. Convert the file: iconv"):
        penstock.jsonl(tmp_path / "rows.jsonl")


# Files that no source reads


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return buffer.getvalue()


def arrays() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.arange(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "kind", "fix"),
    [
        ("photos.zip", zipped("cat/1.jpg"), "a zip archive", "Extract it"),
        ("rows.csv.gz", gzip.compress(b"a\n1\n", mtime=0), "a gzip file of csv", "gunzip -k"),
        ("rows.jsonl.gz", gzip.compress(b'{"a": 1}\n', mtime=0), "a gzip file of jsonl", "gunzip -k"),
        ("rows.csv", gzip.compress(b"a\n1\n", mtime=0), "a gzip file", "gunzip -k"),
        ("rows.csv", zipped("xl/workbook.xml"), "a zip archive", "Extract it"),
        ("table.xlsx", zipped("xl/workbook.xml"), "an Excel workbook", "Save it as CSV or Parquet"),
        ("data.h5", b"\x89HDF\r\n\x1a\n" + bytes(90), "an HDF5 file", "h5py"),
        ("data.npz", arrays(), "a file of NumPy arrays", "numpy.load"),
        ("clip.mp4", b"\0\0\0\x18ftypmp42" + bytes(90), "an MP4 or QuickTime video", "frames"),
        ("song.wav", b"RIFF\0\0\0\0WAVEfmt " + bytes(90), "a WAV recording", "penstock.csv"),
        ("paper.pdf", b"%PDF-1.4", "a PDF document", "Export"),
        ("model.pkl", b"\x80\x04}.", "a pickle, which Penstock never loads", "Load it in Python"),
        ("rows.db", b"SQLite format 3\0" + bytes(90), "an SQLite database", "Export its tables as CSV"),
        ("rows.feather", b"ARROW1\0\0" + bytes(90), "an Arrow or Feather file", "pyarrow"),
        ("one.jpg", picture(1), "a JPEG image", "Put images into a folder"),
        ("notes.txt", b"hello\nworld\n", "a text file that begins with 'hello world'", "CSV or JSON lines"),
        ("nothing.bin", b"", "an empty file", "Give the file"),
    ],
)
def test_each_kind_of_file_gets_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    data: bytes,
    kind: str,
    fix: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(data)
    error = build(capsys, name, "out", code=2)
    assert len(error.splitlines()) == 1
    assert f"got {kind} - at {name}" in error
    assert fix in error
    assert not Path("out").exists()


def test_a_folder_that_no_source_reads_names_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "got an empty folder" in build(capsys, str(folder), "out", code=2)
    (folder / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(90))
    (folder / "zoo.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(90))
    error = build(capsys, str(folder), "out", code=2)
    assert "got none of them, but clip.mp4 and 1 more (clip.mp4 is an MP4 or QuickTime video)" in error


def test_a_url_that_no_source_reads_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    error = build(capsys, "https://server.invalid/notes.txt", "out", code=2)
    assert "https://server.invalid/notes.txt" in error
    assert "Download it first" in error
    with pytest.raises(SchemaError):
        penstock.sources.recognise("https://server.invalid/notes.txt")
