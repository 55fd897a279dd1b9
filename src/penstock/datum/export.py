"""Sources built as a dataset that Datum's reader opens, and everyone else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..build.report import Built
from ..build.run import build
from ..load.dataset import load
from ..manifest import MANIFEST
from ..records.datum_files import MAPPING
from ..splitting import Splits
from ..storage import PathLike, checked_path, is_file, join_path
from .features import as_features
from .writing import describe


def export(sources: Mapping[str, Any], path: PathLike, *, sparse: Sequence[str] = (), numbered: bool = False) -> Built:
    """Build listed sources, one for each split, in Datum's features and order, with Datum's two JSON files beside them.

    Splits that are there already and are not named stay as they are.

    sparse    features that are lists of any length; those that differ in length are found out without it
    numbered  whether the keys of examples are their numbers
    """
    features, schema = as_features(sources, sparse, numbered=numbered)
    directory = checked_path(path, "output_path")
    there = any(is_file(join_path(directory, name)) for name in (MANIFEST, MAPPING))
    kept = load(directory, decode=False) if there else {}
    built = build(Splits({**kept, **features}), directory, schema=schema, order="tfds", overwrite=True)
    describe(directory)
    return built
