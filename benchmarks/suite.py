"""Every row of the table, in order. A new group of rows is a new file, added here."""

from __future__ import annotations

from benchmarks import rows_build, rows_load, rows_records, rows_stores, rows_tar, rows_tfds
from benchmarks.rows import Row

ROWS: tuple[Row, ...] = (
    *rows_records.ROWS,
    *rows_build.ROWS,
    *rows_load.ROWS,
    *rows_tfds.ROWS,
    *rows_tar.ROWS,
    *rows_stores.ROWS,
)


def row(name: str) -> Row:
    """The row of that name."""
    return next(row for row in ROWS if row.name == name)
