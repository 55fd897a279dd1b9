"""The largest row that this process reads."""

from __future__ import annotations

from .. import _core
from ..errors import SchemaError


def max_row_bytes(limit: int | None = None) -> int:
    """Return the largest row that this process reads, in bytes; with `limit`, set it and return the previous one.

    Files and schemas can name any size: a record that inflates to gigabytes, a column of a billion elements. Larger
    ones raise an error before memory is allocated. The default is 1 GiB. The limit applies to

    - a record of a compressed file, and a chunk of an ArrayRecord file, once inflated
    - a row of one column, by its schema or once inflated
    - the rows of one batch that are missing from their records and filled in

    before = max_row_bytes(4 << 30)

    Call it before you open a dataset, in each process that reads: a process that was spawned starts with the default.
    """
    if limit is None:
        return _core.max_row_bytes()
    if type(limit) is not int or not 1 <= limit < 2**64:
        raise SchemaError(f"expected a limit of 1 or more bytes, got {limit!r}", "max_row_bytes")
    return _core.max_row_bytes(limit)
