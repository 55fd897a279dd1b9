"""JSON files that end with the CRC-32C of their own bytes, so that one flipped bit is noticed.

A sealed file has one member per line. The last member is `crc32c`: the checksum of all bytes before its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .._core import crc32c
from ..errors import CorruptionError

SEAL = "crc32c"
_SEAL = re.compile(rb',\n "crc32c": (0|[1-9]\d{0,9})\n\}\n\Z')


def seal_json(members: Mapping[str, Any]) -> bytes:
    """Return an object as a sealed file."""
    lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())
    body = ("{\n" + ",\n".join(lines)).encode()
    return body + f',\n "{SEAL}": {crc32c(body)}\n}}\n'.encode()


def parse_sealed(data: bytes, what: str, where: str, also: str = SEAL) -> Any:
    """Parse a JSON file and check its seal. A file without a seal is accepted, except if it has the member `also`.

    Raises CorruptionError for other bytes, for an object with a duplicate name, and for a checksum that does not match.
    """
    try:
        parsed = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"expected {what}, got broken JSON ({error})", where) from None
    if isinstance(parsed, dict) and (SEAL in parsed or also in parsed):
        found = _SEAL.search(data)
        if found is None:
            raise _broken(f"expected {what} that ends with its CRC-32C, got another end", where, {SEAL, also})
        actual = crc32c(data[: found.start()])
        if actual != int(found[1]):
            got = f"{actual:#010x}: the file was changed or damaged"
            raise _broken(f"expected {what} with CRC-32C {int(found[1]):#010x}, got {got}", where, {SEAL, also})
        del parsed[SEAL]
    return parsed


def _broken(problem: str, where: str, members: set[str]) -> CorruptionError:
    named = " and ".join(f'"{member}"' for member in sorted(members))
    hint = f"Restore the file from a copy. If you edited it on purpose, remove {named} from it"
    error = CorruptionError(f"{problem} - at {where}. {hint}")
    error.path = where
    return error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these pairs. JSON leaves open what a duplicate name means."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name[:100]!r} occurs twice in an object")
        found[name] = value
    return found
