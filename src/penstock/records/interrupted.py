"""Records of commits that replace plain files: while one exists beside files, they may be of two builds.

A commit of plain files writes a record first, then moves and removes files, and removes the record last. A reader that
finds the record refuses the files; the next build of the same names finishes the commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress

from ..errors import CorruptionError

FOLDER = ".penstock-commit"


def check_complete(files: Iterable[str]) -> None:
    """Refuse files that an interrupted commit was to replace, to write or to remove."""
    names: dict[str, set[str]] = {}
    for file in files:
        folder, name = os.path.split(file)
        names.setdefault(folder, set()).add(name)
    for folder, inside in names.items():
        records = os.path.join(folder, FOLDER)
        if not os.path.isdir(records):
            continue
        for record in sorted(name for name in os.listdir(records) if name.endswith(".json")):
            touched = inside & _touched(os.path.join(records, record))
            if touched:
                place = os.path.join(folder, min(touched))
                hint = "Run the same build again: it finishes"
                problem = "expected files of one build, got an overwrite that was interrupted"
                raise CorruptionError(f"{problem} - at {place}. {hint}")


def _touched(path: str) -> set[str]:
    """The names that a record lists; none if it is finished meanwhile, or is still being written."""
    with suppress(OSError, ValueError, TypeError, KeyError), open(path, encoding="utf-8") as file:
        return set(json.load(file)["touched"])
    return set()
