"""Representative builds and the SHA-256 of every file they write: `python -m tests.support.golden_builds` records them.

The bytes of a dataset are a promise: a change of code that does not change the format must not change them.
`tests/test_golden.py` builds again and compares with `tests/data/golden.json`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden.json"


def png(number: int) -> bytes:
    """Return an 8 x 8 image; its bytes depend on no library's compressor."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (8).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    lines = b"".join(b"\0" + bytes((number * 7 + i) % 256 for i in range(24)) for _ in range(8))
    stored = b"\x78\x01\x01" + len(lines).to_bytes(2, "little") + (65535 - len(lines)).to_bytes(2, "little") + lines
    data = stored + zlib.adler32(lines).to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def rows(count: int = 60) -> list[dict[str, Any]]:
    """Return examples with every kind of value."""
    return [
        {
            "id": i,
            "score": i / 7,
            "text": f"row {i} é",
            "tokens": list(range(i % 5)),
            "grid": np.arange(6, dtype=np.float32).reshape(2, 3) * i,
            "data": bytes([i]) * (i % 4),
            "nested": {"a": i % 2 == 0, "b": [f"s{i}"] * (i % 3)},
            "maybe": None if i % 3 else i,
        }
        for i in range(count)
    ]


class Recording(ps.Example):
    """A typed example that loads its data."""

    name: ps.Text
    samples: ps.Array[np.float32, 4]

    def load(self) -> None:
        """Fill the samples."""
        self.samples = np.full(4, len(self.name), np.float32)


def write_raw(raw: Path) -> None:
    """Write the raw data of all builds."""
    for split, count in (("train", 8), ("test", 3)):
        for i in range(count):
            path = raw / "images" / split / ("cat" if i % 2 else "dog") / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(i))
    (raw / "table.csv").write_text("id,score,name\n" + "".join(f"{i},{i / 4},name {i}\n" for i in range(40)))
    (raw / "rows.jsonl").write_text("".join(json.dumps({"id": i, "tags": ["a"] * (i % 3)}) + "\n" for i in range(40)))
    (raw / "rows.json").write_text(json.dumps([{"id": i, "name": f"n{i}"} for i in range(20)]))
    with tarfile.open(raw / "samples.tar", "w") as archive:
        for i in range(12):
            for suffix, data in (("png", png(i)), ("cls", f"{i % 3}".encode())):
                member = tarfile.TarInfo(f"{i:04d}.{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    images = [{"id": i, "file_name": f"{i}.png", "width": 8, "height": 8} for i in range(4)]
    boxes = [
        {"id": i, "image_id": i % 4, "category_id": 1 + i % 2, "bbox": [1, 1, 3, 4], "area": 12, "iscrowd": 0}
        for i in range(6)
    ]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    (raw / "coco" / "images").mkdir(parents=True)
    for i in range(4):
        (raw / "coco" / "images" / f"{i}.png").write_bytes(png(i))
    document = {"images": images, "annotations": boxes, "categories": categories}
    (raw / "coco" / "boxes.json").write_text(json.dumps(document))
    for path in raw.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


def _parquet(raw: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"id": list(range(30)), "name": [f"n{i}" for i in range(30)]})
    pyarrow.parquet.write_table(table, raw / "table.parquet")
    os.utime(raw / "table.parquet", (1_700_000_000, 1_700_000_000))
    return ps.parquet(raw / "table.parquet")


def _stream() -> Iterator[dict[str, Any]]:
    yield from rows(30)


def _tars(raw: Path, out: str) -> object:
    ps.build(ps.image_folder(raw / "images"), out)
    return ps.convert(out, out + "-tars/{split}-{000..}.tar")


def _tornet(raw: Path, out: str) -> object:
    from penstock.recipes import tornet

    root = tornet.write_sample(raw / "tornet", files=2, years=[2013])
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return tornet.build(root, out)


BUILDS: dict[str, Callable[[Path, str], object]] = {
    "image_folder": lambda raw, out: ps.build(ps.image_folder(raw / "images"), out),
    "csv": lambda raw, out: ps.build(ps.csv(raw / "table.csv"), out, shards=3),
    "jsonl": lambda raw, out: ps.build(ps.jsonl(raw / "rows.jsonl"), out, format="array_record"),
    "json": lambda raw, out: ps.build(ps.json(raw / "rows.json"), out),
    "parquet": lambda raw, out: ps.build(_parquet(raw), out),
    "tar": lambda raw, out: ps.build(ps.tar(raw / "samples.tar"), out, order="source"),
    "coco": lambda raw, out: ps.build(ps.coco(raw / "coco" / "images", raw / "coco" / "boxes.json"), out),
    "rows": lambda raw, out: ps.build(rows(), out, shards=4, seed=3),
    "rows_array_record": lambda raw, out: ps.build(rows(), out, format="array_record", order="tfds"),
    "rows_gzip": lambda raw, out: ps.build(rows(), out, format=ps.TFRecord(compression="gzip")),
    "stream": lambda raw, out: ps.build(_stream, out, shards=2),
    "split": lambda raw, out: ps.build(ps.split(rows(), train=0.8, test=0.2), out),
    "examples": lambda raw, out: ps.build([Recording(name=f"r{i}") for i in range(20)], out),
    "files": lambda raw, out: ps.build(rows(), out + "/part-{000..}.tfrecord", shards=3),
    "file": lambda raw, out: ps.build(rows(), out + "/one.array_record"),
    "tars": lambda raw, out: _tars(raw, out),
    "tornet": lambda raw, out: _tornet(raw, out),
}


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder; of a manifest without its time and its own checksum."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.name == "penstock.json":
                manifest = json.loads(content)
                del manifest["made"], manifest["crc32c"]
                content = json.dumps(manifest, sort_keys=True).encode()
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(content).hexdigest()
    return found


def build_hashes(name: str, folder: Path) -> dict[str, str]:
    """Run a build in an empty folder and return the hashes of what it wrote."""
    raw = folder / "raw"
    raw.mkdir()
    write_raw(raw)
    (folder / "out").mkdir()
    BUILDS[name](raw, str(folder / "out" / "data"))
    return file_hashes(folder / "out")


def main() -> int:
    """Record the hashes of all builds."""
    recorded = {}
    for name in BUILDS:
        with tempfile.TemporaryDirectory() as folder:
            recorded[name] = build_hashes(name, Path(folder))
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(recorded, indent=1) + "\n")
    print(f"{len(recorded)} builds, {sum(map(len, recorded.values()))} files -> {GOLDEN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
