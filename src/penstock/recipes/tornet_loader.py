"""Batches of TorNet as its own project has them: the last frame, coordinates, labels and weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import SchemaError, check_known, name_known
from ..loading.dataset import load
from ..loading.loader import Loader, Split
from ..schema.columns import Array

FRAMEWORKS = ("numpy", "torch", "tf", "keras")
WEIGHTS = {"wN": 1.0, "w0": 1.0, "w1": 1.0, "w2": 1.0, "wW": 0.5}
COORDINATES = "coordinates"
AZIMUTHS, CELLS = 120, 240
SCALE = 1e-5  # of ranges, which are in metres
NEAREST = 2125.0 * SCALE
TO_CENTRE = 250.0  # metres, from the edge of a range

_LIMITS = ("az_lower", "az_upper", "rng_lower", "rng_upper")


def loader(
    years: Iterable[int] | str | Loader,
    framework: str = "numpy",
    batch_size: int = 128,
    *,
    weights: Mapping[str, float] | None = None,
    include_az: bool = False,
    select_keys: Sequence[str] | None = None,
    tilt_last: bool = True,
) -> Any:
    """Batches (x, y) or, with weights, (x, y, w): x has the last frame of all fields and coordinates, y the labels.

    loader([2013, 2014])                                       # train-2013 and train-2014, out of $TFDS_DATA_DIR
    loader("test-2013+test-2014", "torch")                     # any splits
    loader(ps.load(path)["train-2013"].shuffle(seed=7), "tf")  # any loader of examples

    framework    "numpy", "torch" (tensors, for a DataLoader too), "tf" (a tf.data.Dataset), "keras" (a PyDataset)
    weights      by strength: wN no tornado, w0, w1, w2 for EF0, EF1, EF2 and up, wW for a warning
    include_az   coordinates are range, azimuth and 1 / range, not range and 1 / range alone
    select_keys  what x has; all fields unless told
    tilt_last    [..., azimuth, range, tilt], or [..., tilt, azimuth, range]
    """
    if framework not in FRAMEWORKS:
        raise SchemaError(f"expected {', '.join(FRAMEWORKS)}, got {framework!r}", "framework")
    examples = _examples(years)
    narrow = np.float32 if framework == "tf" else np.float64
    prepare = Preparation(
        None if select_keys is None else tuple(select_keys),
        None if weights is None else _checked(weights),
        np.dtype(narrow),
        include_az,
        tilt_last,
    )
    fields = prepare.fields(tuple(examples.schema))
    if framework == "keras":
        return _keras(examples, fields, batch_size, prepare)
    batches = examples.select(*fields).batch(batch_size).map(prepare)
    return {"numpy": lambda: batches, "torch": batches.to_torch, "tf": batches.to_tf}[framework]()


def _examples(years: Iterable[int] | str | Loader) -> Loader:
    if isinstance(years, Loader):
        return years
    expression = years if isinstance(years, str) else "+".join(f"train-{int(year)}" for year in years)
    return load("tfds:tornet")[expression]


def _keras(examples: Loader, fields: tuple[str, ...], batch_size: int, prepare: Preparation) -> Any:
    """By number, so that Keras can take batches in any order."""
    from ..frameworks.keras import KerasBatches

    if not isinstance(examples, Split):
        hint = "Give a split: fit(shuffle=True) takes its batches in another order each epoch"
        raise SchemaError("expected years or a split, got a loader with an order of its own", "keras", hint)
    return KerasBatches(Split(replace(examples.spec, fields=fields), examples.name), batch_size, prepare)


def _checked(weights: Mapping[str, float]) -> dict[str, float]:
    check_known(weights, WEIGHTS, "weight", "weights")
    return WEIGHTS | dict(weights)


@dataclass(frozen=True)
class Preparation:
    """What becomes of a batch. It can be pickled, for workers."""

    keys: tuple[str, ...] | None
    weights: dict[str, float] | None
    weight_dtype: np.dtype[Any]
    include_az: bool
    tilt_last: bool

    def fields(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """The fields that have to be read for it."""
        if self.keys is None:
            return known
        for name in self.keys:
            if name not in known and name != COORDINATES:
                hint = name_known(name, [*known, COORDINATES])
                raise SchemaError(f"no field {name!r}", "select_keys", hint)
        needed = {*self.keys, "label"}
        needed |= set(_LIMITS) if COORDINATES in needed else set()
        needed |= {"ef_number", "category"} if self.weights is not None else set()
        return tuple(name for name in known if name in needed)

    def __call__(self, batch: Mapping[str, Array]) -> tuple[Any, ...]:
        """The last frame of all fields, their labels and weights."""
        x = {name: self._tilted(values[:, -1]) for name, values in batch.items()}
        y = x["label"]
        if self.keys is None or COORDINATES in self.keys:
            x[COORDINATES] = coordinates(x, include_az=self.include_az, tilt_last=self.tilt_last)
        w = () if self.weights is None else (self._weighed(x),)
        return ({name: x[name] for name in self.keys or x}, y, *w)

    def _tilted(self, values: Array) -> Array:
        turned = values if self.tilt_last or values.ndim < 4 else values.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(turned)

    def _weighed(self, x: Mapping[str, Array]) -> Array:
        """What stands further down in this list goes before."""
        assert self.weights is not None
        weights, ef_number = np.ones(len(x["ef_number"]), self.weight_dtype), x["ef_number"]
        weights[ef_number == -1] = self.weights["wN"]
        weights[x["category"] == 2] = self.weights["wW"]
        weights[ef_number == 0] = self.weights["w0"]
        weights[ef_number == 1] = self.weights["w1"]
        weights[ef_number > 1] = self.weights["w2"]
        return weights


def coordinates(x: Mapping[str, Array], *, include_az: bool = False, tilt_last: bool = True) -> Array:
    """Where each cell is: range, the angle if asked for, and 1 / range, float32[batch, azimuth, range, 2 or 3]."""
    lower, upper = ((x[name].astype(np.float64)) for name in ("rng_lower", "rng_upper"))
    ranges = np.linspace((lower + TO_CENTRE) * SCALE, (upper - TO_CENTRE) * SCALE, CELLS, axis=1)
    ranges = np.maximum(ranges, NEAREST)[:, None, :]
    parts = [ranges, 1 / ranges]
    if include_az:
        first, last = (np.radians(90 - x[name].astype(np.float64)) for name in ("az_lower", "az_upper"))
        parts.insert(1, np.linspace(first, last, AZIMUTHS, axis=1)[:, :, None])
    shape = (len(lower), AZIMUTHS, CELLS)
    whole = np.stack([np.broadcast_to(part.astype(np.float32), shape) for part in parts], axis=-1 if tilt_last else 1)
    return np.ascontiguousarray(whole)
