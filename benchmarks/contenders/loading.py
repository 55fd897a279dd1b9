"""What the loaders have in common: an epoch of batches is timed, and every example of one is compared with the data."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.rows import Job, Setting
from benchmarks.sources import RADAR, SOURCES, Example, fingerprint

PIXELS = (224, 224)  # of W4
CLOSE = 12.0  # how far the pixels of two decoders may be apart, on average
SLOW = 0.1  # the share of the examples for a loader that would take minutes
Batch = Mapping[str, Any]


def numpy_columns(batch: Mapping[str, Any]) -> Batch:
    """A batch of torch's tensors as NumPy arrays."""
    return {name: column.numpy() for name, column in batch.items()}


def epoch_job(
    setting: Setting,
    workload: str,
    epoch: Callable[[], Iterable[Any]],
    columns: Callable[[Any], Batch] = dict,
    share: float = 1,
) -> Job:
    """A job that goes through all batches. To prove them, `columns` makes columns of a batch that can be indexed."""
    key = {"w2": "tokens", "w5": RADAR[0]}.get(workload, "label")
    total = sum(1 for _ in _expected(setting.data, workload, share))

    def run() -> int:
        for _ in epoch():
            pass
        return total

    def checked() -> None:
        found = _examples(map(columns, epoch()), key)
        if workload == "w4":
            _check_pixels(setting.data, found)
            return
        expected = Counter(map(fingerprint, _expected(setting.data, workload, share)))
        got = Counter(map(fingerprint, found))
        if expected != got:
            missing, other = (expected - got).total(), (got - expected).total()
            raise ValueError(f"expected every example once, got {missing} too few and {other} others")

    return Job(run, checked)


def _expected(data: Data, workload: str, share: float) -> Iterator[Example]:
    if workload == "w2":
        columns = data.columns("w2")
        return ({"tokens": columns["values"][a:b]} for a, b in itertools.pairwise(columns["row_splits"]))
    source = SOURCES.get(workload, SOURCES["images"])
    return source.examples(source.part(data, share))


def _examples(batches: Iterable[Batch], key: str) -> Iterator[Example]:
    for batch in batches:
        for row in range(len(batch[key])):
            yield {name: column[row] for name, column in batch.items()}


def _check_pixels(data: Data, found: Iterable[Example]) -> None:
    """Every label, and pixels that look like Pillow's. Decoders and filters differ, so they are not equal.

    The images come by class, as their files stand, or by number, as TensorFlow has written them.
    """
    from PIL import Image

    images = SOURCES["images"].items(data)
    by_number = sorted(images, key=lambda path: path.name)
    labels: Counter[int] = Counter()
    for index, example in enumerate(found):
        labels[int(example["label"])] += 1
        pixels = np.asarray(example["image"])
        if pixels.shape != (*PIXELS, 3) or pixels.dtype != np.uint8:
            raise ValueError(f"expected uint8 {(*PIXELS, 3)}, got {pixels.dtype} {pixels.shape}")
        if index % 37 == 0:
            apart = 255.0
            for path in (images[index], by_number[index]):
                with Image.open(path) as picture:
                    wanted = np.asarray(picture.resize(PIXELS[::-1], Image.Resampling.BILINEAR), np.float32)
                apart = min(apart, float(np.abs(wanted - pixels).mean()))
            if apart > CLOSE:
                raise ValueError(f"image {index}: expected Pillow's pixels, got others, {apart:.1f} apart on average")
    if labels != Counter(int(path.parent.name.removeprefix("class_")) for path in images):
        raise ValueError("expected the labels of all images, got others")
