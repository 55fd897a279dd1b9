"""What the build rows start from: files on disk, or examples that a generator makes. The same for every contender."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import GENERATED, SEED, Array, Artifact, Data

Example = dict[str, Any]

CSV_INTEGERS, CSV_FLOATS, CSV_TEXTS = 24, 12, 4  # 40 columns
CSV_WORDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
RADAR = ("DBZ", "VEL", "KDP", "RHOHV", "ZDR", "WIDTH", "MASK")
RADAR_SHAPE = (4, 120, 240, 2)
NOTHING_SEEN = np.float32(-33)


def _make_csv(data: Data, path: Path) -> None:
    import pandas

    random = np.random.default_rng([SEED, 6])
    count = data.size.w1
    columns: dict[str, Any] = {f"n{i}": random.integers(0, 1 << 20, count) for i in range(CSV_INTEGERS)}
    columns |= {f"x{i}": random.normal(0, 100, count).round(4) for i in range(CSV_FLOATS)}
    columns |= {f"t{i}": np.array(CSV_WORDS)[random.integers(0, len(CSV_WORDS), count)] for i in range(CSV_TEXTS)}
    pandas.DataFrame(columns).to_csv(path, index=False)


def radar(number: int) -> Array:
    """W5: seven variables that look like a radar's. Storms, and a number where nothing is seen."""
    from penstock.recipes.tornet_sample import storms

    seen = storms(np.random.default_rng([SEED, 7, number]), len(RADAR))
    return np.where(np.isnan(seen), NOTHING_SEEN, seen)


def _make_radar(data: Data, path: Path) -> None:
    path.mkdir()
    for number in range(data.size.w5):
        np.save(path / f"{number:04d}.npy", radar(number))


def _make_tornet(data: Data, path: Path) -> None:
    from penstock.recipes import tornet

    tornet.write_sample(path, files=data.size.w5 // 2, years=[2013], seed=SEED)


CSV = Artifact("rows.csv", _make_csv)
RADAR_FILES = Artifact("w5", _make_radar)
TORNET_FILES = Artifact("tornet", _make_tornet)


def image_folder(data: Data) -> Path:
    """root/class/*.jpg"""
    return data.path(GENERATED["w3"]) / "images"


def _image_items(data: Data) -> list[Path]:
    return sorted(image_folder(data).glob("*/*.jpg"))


def _load_image(path: Path) -> Iterator[Example]:
    yield {"image": path.read_bytes(), "label": _label(path)}


def _label(path: Path) -> int:
    return int(path.parent.name.removeprefix("class_"))


def _thumbnail_items(data: Data) -> list[Path]:
    return _image_items(data)[:1_500]


def _load_thumbnail(path: Path) -> Iterator[Example]:
    """What takes its time is to decode the file."""
    from PIL import Image

    with Image.open(path) as picture:
        pixels = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR))
    yield {"pixels": pixels, "label": _label(path)}


def _csv_items(data: Data) -> list[tuple[Path, int, int]]:
    middle = data.size.w1 // 2
    return [(data.path(CSV), 0, middle), (data.path(CSV), middle, data.size.w1)]


def _load_csv(item: tuple[Path, int, int]) -> Iterator[Example]:
    """The fastest way that we know of to get dicts out of pandas: whole columns as lists, then zip."""
    import pandas

    path, start, stop = item
    table = pandas.read_csv(path, skiprows=range(1, start + 1), nrows=stop - start)
    for row in zip(*(table[name].tolist() for name in table.columns), strict=True):
        yield dict(zip(table.columns, row, strict=True))


def _w1_items(data: Data) -> list[tuple[Path, int, int]]:
    folder, count = data.path(GENERATED["w1"]), data.size.w1
    return [(folder, 0, count // 2), (folder, count // 2, count)]


def _load_w1(item: tuple[Path, int, int]) -> Iterator[Example]:
    folder, start, stop = item
    cat, dense, label = (np.load(folder / f"{name}.npy", "r")[start:stop] for name in ("cat", "dense", "label"))
    for row in zip(np.asarray(cat), np.asarray(dense), label.tolist(), strict=True):
        yield {"cat": row[0], "dense": row[1], "label": row[2]}


def _radar_items(data: Data) -> list[Path]:
    return sorted(data.path(RADAR_FILES).glob("*.npy"))


def _load_radar(path: Path) -> Iterator[Example]:
    yield dict(zip(RADAR, np.load(path), strict=True))


def _tornet_items(data: Data) -> list[Path]:
    return sorted(data.path(TORNET_FILES).glob("*/*/*.nc"))


def _load_tornet(path: Path) -> Iterator[Example]:
    """With our own reader for everyone: it is faster than the libraries of NetCDF."""
    from penstock.recipes import tornet

    yield tornet.read_file(str(path))


@dataclass(frozen=True)
class Source:
    """Items, which are small, and what each of them becomes: one example or many, loaded wherever it is wanted."""

    needs: tuple[Artifact, ...]
    items: Callable[[Data], list[Any]]
    load: Callable[[Any], Iterator[Example]]

    def examples(self, items: Iterable[Any]) -> Iterator[Example]:
        """The examples of some items."""
        return itertools.chain.from_iterable(map(self.load, items))

    @staticmethod
    def count(items: list[Any]) -> int:
        """How many examples these items become."""
        return sum(item[2] - item[1] if isinstance(item, tuple) else 1 for item in items)

    def part(self, data: Data, share: float) -> list[Any]:
        """The first items, cut short to a share of the examples."""
        items = self.items(data)
        if share == 1:
            return items
        if isinstance(items[0], tuple):
            return [(path, start, start + int((stop - start) * share)) for path, start, stop in items]
        return items[: max(1, int(len(items) * share))]


SOURCES = {
    "images": Source((GENERATED["w3"],), _image_items, _load_image),
    "thumbnails": Source((GENERATED["w3"],), _thumbnail_items, _load_thumbnail),
    "csv": Source((CSV,), _csv_items, _load_csv),
    "w1": Source((GENERATED["w1"],), _w1_items, _load_w1),
    "w5": Source((RADAR_FILES,), _radar_items, _load_radar),
    "tornet": Source((TORNET_FILES,), _tornet_items, _load_tornet),
}


def fingerprint(example: Mapping[str, Any]) -> bytes:
    """One hash over an example: integers as int64, floats as float32, text as its bytes."""
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(example):
        value = example[name]
        value = value.encode() if isinstance(value, str) else value
        if not isinstance(value, bytes):
            array = np.asarray(value)
            value = array.astype(np.float32 if array.dtype.kind == "f" else np.int64).tobytes()
        total.update(f"{name} {len(value)} ".encode())
        total.update(value)
    return total.digest()


def check_built(expected: Iterable[Example], count: int, some: Iterable[Mapping[str, Any]]) -> None:
    """Raise unless a dataset has as many examples as its source, and some that were read back are the source's."""
    known = Counter(map(fingerprint, expected))
    if count != known.total():
        raise ValueError(f"expected {known.total()} examples, got {count}")
    found = [fingerprint(example) in known for example in some]
    if not found or not all(found):
        raise ValueError(f"expected examples of the source, got {found.count(False)} others among {len(found)}")
