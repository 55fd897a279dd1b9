"""What the scenarios run in processes of their own, to be killed or to run out of memory: python -m chaos.children.

Each function takes plain values and returns a value that the process prints as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps

FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "shutil.rmtree"}
MEMORY = 6 << 30  # address space of a process that reads damaged files, bytes
_operations = 0


def die_at(operation: int, folder: str) -> None:
    """Kill this process group at its nth file operation in `folder`; 0 only counts them."""

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        global _operations
        if event in FILE_EVENTS and folder in str(arguments[0]):
            _operations += 1
            if _operations == operation:
                os.killpg(0, signal.SIGKILL)

    sys.addaudithook(watch)


class Rows:
    """240 examples with keys."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, number: int) -> dict[str, Any]:
        if number >= 240:
            raise IndexError(number)
        return {"x": number, "text": f"row {number}", "data": bytes([number % 256]) * 1500}

    def key(self, number: int) -> str:
        """Return the key of an example."""
        return f"row{number:04d}"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(240))


def build_rows(folder: str, kind: str, operation: int) -> int:
    """Build the rows; return the number of file operations."""
    die_at(operation, folder)
    target = f"{folder}/data"
    if kind == "stream":
        ps.build(lambda: iter(Rows()), target, shards=6, workers=2)
    elif kind in ("tfrecord", "array_record"):
        ps.build(Rows(), target, shards=12, workers=2, format=kind)
    else:
        ps.build(Rows(), target + "/part-{000..}." + kind.removeprefix("files."), shards=6, workers=2)
    return _operations


def overwrite_files(folder: str, version: int, files: int, operation: int) -> int:
    """Overwrite plain files with 40 records each; return the number of file operations."""
    die_at(operation, folder)
    rows = [{"x": i, "v": version} for i in range(40 * files)]
    ps.build(rows, folder + "/p-{000..}.tfrecord", shards=files, overwrite=True, workers=1)
    return _operations


def read_versions(folder: str) -> dict[str, Any]:
    """Return the versions of the records that load, or the error."""
    try:
        versions = [int(example["v"]) for example in ps.load(folder + "/p-{000..}.tfrecord")["train"]]
    except ps.PenstockError as error:
        return {"error": str(error)}
    return {"versions": sorted(set(versions)), "records": len(versions)}


def _values(path: str) -> list[dict[str, Any]]:
    examples = ps.load(path)["train"]
    return [{name: np.asarray(value).tolist() for name, value in example.items()} for example in examples]


def _verify(path: str) -> int:
    """Return the exit code of `penstock verify`."""
    from penstock.cli import main

    sys.argv[1:] = ["verify", "--json", path]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return int(main() or 0)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 1


def _damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a name for the damage, and the damaged content."""
    damaged, place = bytearray(content), rng.randrange(len(content))
    how = rng.choice(["flip", "flip", "flip", "cut", "byte", "insert", "zeros"])
    if how == "flip":
        damaged[place] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del damaged[place:]
    elif how == "byte":
        damaged[place] = rng.randrange(256)
    elif how == "insert":
        damaged[place:place] = rng.randbytes(rng.randrange(1, 9))
    else:
        damaged[place : place + 64] = bytes(len(damaged[place : place + 64]))
    return f"{how} at {place}", bytes(damaged)


def _record_starts(content: bytes) -> set[int]:
    """Return where the records of a TFRecord file begin, and its end."""
    starts, at = set(), 0
    while at < len(content):
        starts.add(at)
        at += 16 + int.from_bytes(content[at : at + 8], "little")
    return starts | {at}


def read_damaged(folder: str, seed: int, damages: int) -> dict[str, Any]:
    """Damage the files of a dataset one at a time.

    `load` must deliver the true examples or raise PenstockError; if it does not deliver them, `verify` must report it.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rng = random.Random(seed)
    kind = rng.choice(["tfrecord", "array_record", "gzip", "zlib", "files.tfrecord", "files.array_record", "tar"])
    target = f"{folder}/data"
    if kind.startswith("files."):
        path = target + "/p-{000..}." + kind.removeprefix("files.")
        ps.build([{"x": i, "r": [1] * (i % 5)} for i in range(90)], path, shards=3)
    elif kind == "tar":
        path = target + "/p-{000..}.tar"
        ps.build([{"txt": f"text {i}", "cls": i % 7} for i in range(90)], f"{folder}/records", shards=3)
        ps.convert(f"{folder}/records", path)
    else:
        path = target
        rows = [{"x": i, "f": [i / 7] * 3, "t": f"text {i}", "r": [1] * (i % 5), "c": i % 2} for i in range(90)]
        classes = ps.Field(dtype="int64", classes=("cat", "dog"))
        schema = {"x": "int64", "f": "float32[3]", "t": "str", "r": "int64[?]", "c": classes}
        record_format: Any = kind if kind.endswith("record") else ps.TFRecord(compression=kind)
        ps.build(rows, path, shards=3, schema=schema, format=record_format)
    true = _values(path)
    files = sorted(file for file in Path(target).rglob("*") if file.is_file() and file.stat().st_size)
    outcomes: Counter[str] = Counter()
    failures = []
    for _ in range(damages):
        file = rng.choice(files)
        whole = file.read_bytes()
        how, damaged = _damage(whole, rng)
        cut_between_records = whole.startswith(damaged) and len(damaged) in _record_starts(whole)
        if damaged == whole or (kind == "files.tfrecord" and file.suffix == ".tfrecord" and cut_between_records):
            continue  # without a manifest, a file that ends between two records is a whole one
        file.write_bytes(damaged)
        where = f"{kind}: {how} of {file.name}"
        try:
            outcome = "read as before" if _values(path) == true else "other examples"
        except ps.PenstockError:
            outcome = "error in load"
        except Exception as error:  # noqa: BLE001 - any other class is what this looks for
            outcome = "other error"
            failures.append(f"{where}: load raised {type(error).__name__}: {error}")
        code = _verify(path)
        if outcome == "other examples" and not (kind == "tar" and code):
            # Files in a tar have no checksums, so that only verify notices, by the checksum in the index.
            failures.append(f"{where}: load delivered other examples without an error")
        if code not in (0, 1, 2):
            failures.append(f"{where}: verify ended with exit code {code}")
        elif code == 0 and outcome != "read as before":
            failures.append(f"{where}: {outcome}, but verify reports no damage")
        outcomes[outcome] += 1
        outcomes["found by verify"] += code != 0
        file.write_bytes(whole)
    return {"outcomes": outcomes, "failures": failures}


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (8).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    lines = b"".join(b"\0" + bytes(range(24)) for _ in range(8))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(6):
            for suffix, data in (("cls", b"1"), ("txt", f"text {number}".encode())):
                member = tarfile.TarInfo(f"{number:03d}.{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def _records(folder: str) -> bytes:
    path, codec = f"{folder}/seed.tfrecord", ps.Codec({"x": "int64", "t": "str"})
    with ps.TFRecordWriter(path) as writer:
        for number in range(8):
            writer.write(codec.encode_example({"x": number, "t": f"text {number}"}))
    return Path(path).read_bytes()


def _mutate(content: bytes, rng: random.Random) -> bytes:
    mutated = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        place, how = rng.randrange(len(mutated) + 1), rng.randrange(4)
        if how == 0:
            mutated[place : place + 1] = rng.randbytes(1)
        elif how == 1:
            words = [b"\0", b'"', b"\n", b"\xff\xfe", b"{", b"[", b"1e999", b"9" * 25]
            mutated[place:place] = rng.choice(words)
        elif how == 2:
            del mutated[place : place + rng.randrange(1, 40)]
        else:
            mutated[place:place] = mutated[: rng.randrange(1, 60)]
    return bytes(mutated)


def build_mutated(folder: str, seed: int, inputs: int) -> dict[str, Any]:
    """Build from raw files with random edits: a dataset that loads, or a PenstockError and no dataset."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rng = random.Random(seed)
    seeds = {
        "a.csv": b"x,y,t\n" + b"".join(b'%d,%f,"text, %d"\n' % (i, i / 3, i) for i in range(20)),
        "a.jsonl": b"".join(json.dumps({"x": i, "n": {"y": [1, i]}}).encode() + b"\n" for i in range(20)),
        "a.json": json.dumps([{"x": i, "t": None} for i in range(20)]).encode(),
        "a.tar": _tar(),
        "a.tfrecord": _records(folder),
        "cat/a.png": _png(),
    }
    sources = {"a.csv": ps.csv, "a.jsonl": ps.jsonl, "a.json": ps.json, "a.tar": ps.tar, "a.tfrecord": ps.tfrecords}
    raw, out = Path(folder, "raw"), Path(folder, "out")
    outcomes: Counter[str] = Counter()
    failures = []
    for _ in range(inputs):
        name = rng.choice(sorted(seeds))
        content = _mutate(seeds[name], rng)
        shutil.rmtree(raw, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        (raw / name).parent.mkdir(parents=True)
        (raw / name).write_bytes(content)
        try:
            source: Any = sources[name](raw / name) if name in sources else ps.image_folder(raw)
            ps.build(source, out, workers=1)
            sum(1 for split in ps.load(out).values() for _ in split)
        except ps.PenstockError as error:
            outcome = "refused"
            if (out / "penstock.json").exists():
                outcome = "damaged image reported by load"  # a build stores image files without decoding them
                if not isinstance(error, ps.CorruptionError) or name != "cat/a.png":
                    failures.append(f"{name} {content!r}: built a dataset that cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 - any other class is what this looks for
            outcome = "wrong"
            failures.append(f"{name} {content[:300]!r}: {type(error).__name__}: {error}")
        else:
            outcome = "built"
        outcomes[outcome] += 1
    return {"outcomes": outcomes, "failures": failures}


def cached_epochs(url: str, cache: str, cache_bytes: int, seed: int, epochs: int) -> list[str]:
    """Read epochs of a remote dataset through a cache and compare every example; return what is wrong."""
    wrong = []
    loader = ps.load(url, cache=cache, cache_bytes=cache_bytes)["train"].shuffle(seed=seed).batch(16)
    for epoch in range(epochs):
        seen: list[int] = []
        for batch in loader:
            seen += batch["x"].tolist()
            wrong += [
                f"example {x} has other data"
                for x, data in zip(batch["x"], batch["data"], strict=True)
                if set(data) != {x}
            ]
        if sorted(seen) != list(range(len(seen))) or len(seen) != 200:
            wrong.append(f"epoch {epoch} delivered {len(seen)} examples, {len(set(seen))} of them different")
    return wrong[:5]


CHILDREN = {
    function.__name__: function
    for function in (build_rows, overwrite_files, read_versions, read_damaged, build_mutated, cached_epochs)
}

if __name__ == "__main__":
    print(json.dumps(CHILDREN[sys.argv[1]](*json.loads(sys.argv[2]))))  # type: ignore[operator]
