"""bfloat16 from arrays of ml_dtypes to records and to every framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

ml_dtypes = pytest.importorskip("ml_dtypes")
X = np.arange(24, dtype=np.float32).reshape(6, 4).astype(ml_dtypes.bfloat16)


def sources() -> dict[str, Any]:
    rows = [{"x": row, "y": row[1]} for row in X]
    return {
        "examples": rows,
        "generator": (row for row in rows),
        "table": ps.table({"x": X, "y": X[:, 1].copy()}),
        "columns": {"x": X, "y": X[:, 1].copy()},
        "strides": ps.table({"x": np.repeat(X, 2, 1)[:, ::2], "y": X[:, 1]}),
    }


@pytest.mark.parametrize("kind", sources())
@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_bfloat16_is_built_from_any_source(tmp_path: Path, kind: str, format: str) -> None:
    ps.build(sources()[kind], tmp_path / "d", format=format)
    split = ps.load(tmp_path / "d")["train"]
    batch = next(iter(split.batch(6)))
    assert batch["x"].dtype == batch["y"].dtype == split[0]["x"].dtype == ml_dtypes.bfloat16
    assert sorted(batch["x"].astype(float).ravel().tolist()) == list(range(24))
    assert (batch["x"][:, 1] == batch["y"]).all()
    again = ps.build(sources()[kind], tmp_path / "d", format=format, overwrite=True)
    assert again is not None


def test_other_columns_without_a_buffer_are_checked_for_changes(tmp_path: Path) -> None:
    """The checksum of a column is over its bytes, whatever its dtype: another value is another source."""
    from penstock.building.listing import column_checksum

    one, other = X.copy(), X.copy()
    other[3, 2] = 7
    assert column_checksum(one) == column_checksum(X.copy()) != column_checksum(other)
    assert column_checksum(one[:, ::2]) == column_checksum(one[:, ::2].copy())
    assert column_checksum(np.array(["2026-01-01"], "datetime64[s]")) != 0


def test_bfloat16_in_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ps.build([{"x": row, "y": row[1], "r": row[: 1 + at % 3]} for at, row in enumerate(X)], tmp_path / "d")
    split = ps.load(tmp_path / "d")["train"]
    batch = next(iter(split.batch(6).to_torch()))
    assert batch["x"].dtype == batch["y"].dtype == batch["r"].dtype == torch.bfloat16
    assert sorted(batch["x"].float().flatten().tolist()) == list(range(24))
    example = next(iter(split.to_torch()))
    assert example["x"].dtype == example["y"].dtype == example["r"].dtype == torch.bfloat16
    assert float(example["y"]) == float(example["x"][1])


def test_bfloat16_in_jax(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    ps.build([{"x": row, "y": row[1]} for row in X], tmp_path / "d")
    batch = next(iter(ps.load(tmp_path / "d")["train"].batch(6).to_jax()))
    assert batch["x"].dtype == batch["y"].dtype == jax.numpy.bfloat16


def test_bfloat16_in_tensorflow(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    ps.build([{"x": row, "y": row[1]} for row in X], tmp_path / "d")
    split = ps.load(tmp_path / "d")["train"]
    batch = next(iter(split.batch(6).to_tf()))
    assert batch["x"].dtype == batch["y"].dtype == tf.bfloat16
    assert next(iter(split.to_tf()))["x"].dtype == tf.bfloat16
