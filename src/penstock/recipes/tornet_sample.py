"""Files like those of TorNet, made from a seed: for tests, demos and benchmarks where the real ones are not at hand."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from ..schema.columns import Array, ExampleDict
from ..sources.netcdf import need_h5py
from ..storage.files import local_path

FIELDS = ("type", "start_time", "end_time", "filename", "ef_number", "category", "event_id", "site_name")
STEP_SECONDS = 290  # between the frames of a file
CELL = 250.0  # metres
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."  # as NetCDF's library says it
SHAPE = (FRAMES := 4, 120, 240, 2)  # time, azimuth, range, sweep
MASK = "range_folded_mask"
# The radar's variables, each with the range that a model may scale it by.
RANGES = {
    "DBZ": (-20.0, 60.0),
    "VEL": (-60.0, 60.0),
    "KDP": (-2.0, 5.0),
    "RHOHV": (0.2, 1.04),
    "ZDR": (-1.0, 8.0),
    "WIDTH": (0.0, 9.0),
}
# What one unit of a storm is in each: a radar measures most of them in steps that are powers of two, or nearly so.
UNITS = {"DBZ": 1.0, "VEL": 1.5, "KDP": 7 / 80, "RHOHV": 1 / 96, "ZDR": 1 / 8, "WIDTH": 1 / 8}

_EF_NUMBERS = (-1, -1, 0, 2, -1, 1, -1, 3)  # in turns; about half of the real ones have no tornado


def storms(random: np.random.Generator, variables: int) -> Array:
    """So many variables of a radar: smooth storms, grainy, in steps of a half, and NaN where nothing is seen."""
    coarse = random.normal(0, 20, (variables, 4, 9, 17, 2)).astype(np.float32)
    smooth = coarse
    for axis, length in ((2, 120), (3, 240)):
        at = np.linspace(0, smooth.shape[axis] - 1.001, length, dtype=np.float32)
        low = at.astype(np.int64)
        part = (at - low).reshape([length if i == axis else 1 for i in range(5)])
        smooth = smooth.take(low, axis) * (1 - part) + smooth.take(low + 1, axis) * part
    grain = random.integers(-2, 3, (variables, *SHAPE), dtype=np.int8)
    seen: Array = np.where(smooth > 0, np.round(2 * smooth + grain) / 2, np.nan).astype(np.float32)
    return seen


def write_sample(root: str | Path, *, files: int = 8, years: Sequence[int] = (2013, 2014), seed: int = 0) -> Path:
    """A folder as TorNet unpacks to: catalog.csv, and so many NetCDF files for each year of train and of test.

    The first file of a year's train begins in the year before: it crosses New Year. Two neighbours share an event.
    """
    root = local_path(root, "root")
    rows = []
    for kind in ("train", "test"):
        for year in years:
            (root / kind / str(year)).mkdir(parents=True, exist_ok=True)
            for number in range(files):
                row = _row(kind, year, number)
                _write_file(root / row["filename"], row, np.random.default_rng([seed, year, len(kind), number]))
                rows.append(row)
    with open(root / "catalog.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    return root


def _row(kind: str, year: int, number: int) -> ExampleDict:
    """A line of the catalog."""
    end = datetime(year, 1, 1, 0, 2) + timedelta(hours=7 * number)
    end += timedelta(days=180) if kind == "test" or number else timedelta()
    start = end - timedelta(seconds=STEP_SECONDS * (FRAMES - 1))
    ef_number = _EF_NUMBERS[number % len(_EF_NUMBERS)]
    category = "TOR" if ef_number >= 0 else ("NUL", "WRN")[number // 2 % 2]
    event = 1000 * year + 500 * (kind == "test") + number // 2
    name = f"{category}_{end:%y%m%d_%H%M%S}_KGWX_{event}_{number:04}.nc"
    values = (kind, str(start), str(end), f"{kind}/{year}/{name}", ef_number, category, event, "KGWX")
    return dict(zip(FIELDS, values, strict=True))


def _write_file(path: Path, row: ExampleDict, random: np.random.Generator) -> None:
    """One NetCDF file: HDF5 with a scale for each dimension, compressed as NetCDF's libraries do it."""
    h5py = need_h5py()
    seen = storms(random, len(RANGES) + 1)
    limits = np.array([66_000.0, 126_500.0]) + CELL * int(random.integers(0, 400))
    azimuth = np.array([316.0, 376.0]) + float(random.integers(0, 300))
    start = datetime.fromisoformat(row["start_time"])
    coordinates: dict[str, Array | None] = {
        "time": np.arange(FRAMES, dtype=np.int64) * STEP_SECONDS,
        "azimuth": np.linspace(azimuth[0] + 0.25, azimuth[1] - 0.25, SHAPE[1]).astype(np.float32),
        "range": np.linspace(limits[0] + CELL / 2, limits[1] - CELL / 2, SHAPE[2]).astype(np.float32),
        "sweep": None,
        "lims": None,
    }
    cube, frames, lims = ("time", "azimuth", "range", "sweep"), ("time",), ("lims",)
    variables: dict[str, tuple[tuple[str, ...], Array]] = {
        name: (cube, np.clip(low + UNITS[name] * values, low, high).astype(np.float32))
        for (name, (low, high)), values in zip(RANGES.items(), seen, strict=False)
    }
    labels = np.zeros(FRAMES, np.uint8)
    labels[-2:-1] = row["ef_number"] >= 0  # the last one is wrong on purpose, as it is in some of the first version
    variables |= {
        MASK: (cube, (seen[-1] > 60).astype(np.uint8)),
        "frame_labels": (frames, labels),
        "azimuth_limits": (lims, azimuth.astype(np.float32)),
        "range_limits": (lims, limits.astype(np.float32)),
        "elevation": (("sweep",), np.array([0.5, 0.9])),
        "nyquist_velocity": (("time", "sweep"), np.full((FRAMES, 2), 32.0, np.float32)),
    }
    with h5py.File(path, "w", track_order=True) as file:
        for name, values in coordinates.items():
            length = 2 if values is None else len(values)
            scale = file.create_dataset(name, data=np.zeros(length, ">f4") if values is None else values)
            scale.make_scale(f"{NO_VARIABLE}{length:10}" if values is None else name)
        file["time"].attrs["units"] = np.bytes_(f"seconds since {start}")
        file["time"].attrs["calendar"] = np.bytes_("proleptic_gregorian")
        for name, (dimensions, values) in variables.items():
            packed = {"chunks": values.shape, "compression": "gzip", "compression_opts": 4, "shuffle": True}
            variable = file.create_dataset(name, data=values, **(packed if dimensions == cube else {}))
            for number, dimension in enumerate(dimensions):
                variable.dims[number].attach_scale(file[dimension])
            if values.dtype == np.float32:
                variable.attrs["_FillValue"] = np.array([np.nan], np.float32)
        for name, value in _attributes(row, start).items():
            file.attrs[name] = np.bytes_(value) if isinstance(value, str) else value


def _attributes(row: ExampleDict, start: datetime) -> ExampleDict:
    said = {name: row[name] for name in ("site_name", "category")}
    said |= {"site_lat": 33.9, "site_lon": -88.3, "MissingDataFlag": -999.0, "scit_id": "A0"}
    said |= {"ef_number": float(row["ef_number"]), "event_id": np.int64(row["event_id"]), "episode_id": np.int64(7)}
    if row["ef_number"] >= 0:
        said |= {"tornado_start_time": str(start), "tornado_end_time": row["end_time"]}
    return said
