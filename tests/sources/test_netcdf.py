"""NetCDF-4 files: what the core unpacks is what HDF5's own library reads, and values are decoded by the conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import penstock as ps
from penstock._core import unpack_chunk
from penstock.sources.netcdf import open_netcdf, read_seconds, read_variable

DTYPES = st.sampled_from(["uint8", "int16", "<f4", ">f4", "<f8", "int64"])


@given(
    values=DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(max_dims=4, max_side=5))),
    shuffle=st.booleans(),
    compression=st.sampled_from([None, "gzip", "lzf"]),
    whole=st.booleans(),
    checksum=st.booleans(),
)
def test_values_are_those_of_hdf5(values: Any, shuffle: bool, compression: Any, whole: bool, checksum: bool) -> None:
    chunks = values.shape if whole else tuple(max(1, side // 2) for side in values.shape)
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        variable = file.create_dataset(
            "v", data=values, chunks=chunks, shuffle=shuffle, compression=compression, fletcher32=checksum
        )
        file.flush()
        found = read_variable(variable)
    assert found.tobytes() == values.tobytes()
    assert found.shape == values.shape


def test_what_is_missing_or_scaled_is_decoded() -> None:
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        file["seen"] = np.array([1, -999, 3], np.float32)
        file["seen"].attrs["_FillValue"] = np.float32(-999)
        file["packed"] = np.array([10, 20, -1], np.int16)
        said = {"scale_factor": 0.5, "add_offset": 100.0, "missing_value": np.array([-1], np.int16)}
        file["packed"].attrs.update(said)
        file["plain"] = np.array([1.0, np.nan], np.float32)
        file["plain"].attrs["_FillValue"] = np.float32(np.nan)
        np.testing.assert_array_equal(read_variable(file["seen"]), np.array([1, np.nan, 3], np.float32))
        np.testing.assert_array_equal(read_variable(file["packed"]), np.array([105, 110, np.nan], np.float32))
        np.testing.assert_array_equal(read_variable(file["plain"]), np.array([1, np.nan], np.float32))


@pytest.mark.parametrize(
    ("units", "values", "expected"),
    [
        ("seconds since 1970-01-01", np.array([5, 90]), [5, 90]),
        ("seconds since 2013-05-20 18:02:11", np.array([0, 300]), [1369072931, 1369073231]),
        ("nanoseconds since 1970-01-01T00:00:00", np.array([1369072931999999000]), [1369072931]),
        (
            "nanoseconds since 1970-01-01T00:00:00",
            np.array([1369072931999999999]),
            [1369072932],
        ),  # as a float rounds it
        ("seconds since 2013-05-20 18:02:11.250000", np.array([0, 300]), [1369072931, 1369073231]),
        ("milliseconds since 2013-05-20 18:02:11.75", np.array([0, 250]), [1369072931, 1369072932]),
        ("seconds since 2013-05-20 18:02:11.999999999", np.array([0]), [1369072932]),
        ("days since 2013-01-01", np.array([139 + 64931 / 86400, 139 + 64933 / 86400]), [1369072931, 1369072933]),
        (
            "hours since 2013-01-01",
            np.array([139 * 24 + n / 3600 for n in range(60000, 60007)]),
            [1356998400 + 139 * 86400 + n for n in range(60000, 60007)],
        ),
        ("minutes since 2013-05-20", np.array([1082.5, 1083.25], np.float32), [1369072950, 1369072995]),
        ("minutes since 1970-01-02 00:00:00.0 UTC", np.array([2]), [86520]),
        ("days since 1970-01-01", np.array([1.5]), [129600]),
        ("hours since 1970-01-01 01:00", np.array([-2], np.int32), [-3600]),
    ],
)
def test_times_are_seconds(units: str, values: Any, expected: list[int]) -> None:
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        file["time"] = values
        file["time"].attrs["units"] = units
        assert read_seconds(file["time"]).tolist() == expected


def test_a_file_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with pytest.raises(ps.NotFoundError, match=r"x\.nc"), open_netcdf(str(path)):
        pass
    path.write_bytes(b"no HDF5")
    with pytest.raises(ps.CorruptionError, match=r"expected a sound NetCDF file, got .*x\.nc"), open_netcdf(str(path)):
        pass
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(5000.0), chunks=(5000,), compression="gzip")
        file["time"] = [1]
        file["time"].attrs["units"] = "fortnights since 1970-01-01"
    with pytest.raises(ps.CorruptionError, match=r"fortnights.*x\.nc"), open_netcdf(str(path)) as file:
        read_seconds(file["time"])
    with h5py.File(path) as file:
        offset = file["v"].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset : offset + 200] = b"\xff" * 200
    path.write_bytes(data)
    with pytest.raises(ps.CorruptionError, match=r"zlib.*x\.nc"), open_netcdf(str(path)) as file:
        read_variable(file["v"])


def test_a_chunk_cannot_ask_for_more_memory_than_it_warrants() -> None:
    with pytest.raises(ps.CorruptionError, match="can't hold as many"):
        unpack_chunk(b"12345678", 1 << 50, 4)


def test_without_h5py_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ps.MissingDependencyError, match=r"pip install penstock-data\[netcdf\]"), open_netcdf("x.nc"):
        pass
