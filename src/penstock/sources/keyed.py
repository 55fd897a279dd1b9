"""Examples that a generator yields with their keys, as those of TFDS and of Datum do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import SchemaError
from ..inference import infer
from ..storage import is_url, split_url
from .files import IMAGE_SUFFIXES, has_suffix
from .listed import Examples, Loading


def keyed(pairs: Iterable[tuple[Any, Mapping[str, Any]]], where: str, *, images: bool = True) -> Loading:
    """The examples of pairs (key, example), listed. `where` names what yields them.

    images  texts that end as the names of image files do, in the first example, stand for these files
    """
    found = [(str(key), dict(example)) for key, example in pairs]
    if not found:
        raise SchemaError("expected examples, got none", where)
    texts = [name for name, value in found[0][1].items() if isinstance(value, str)]
    files = [name for name in texts if images and has_suffix(found[0][1][name], IMAGE_SUFFIXES)]
    for key, example in found:
        for name in files:
            if not isinstance(example.get(name), str):
                raise SchemaError(
                    f"expected the name of an image file in {name!r}, got none", f"{where}, example {key!r}"
                )
            example[name] = example[name] if is_url(example[name]) else os.path.abspath(example[name])
    keys, examples = [key for key, _ in found], [example for _, example in found]
    places = [f"{where}, example {key!r}" for key in keys]
    images_at = {
        split_url(path)[0] if is_url(path) else os.sep for each in examples for path in (each[name] for name in files)
    }
    if len(images_at) > 1:
        raise SchemaError(f"expected images of one store, got some of {' and of '.join(sorted(images_at))}", where)
    root = next(iter(images_at), os.sep)
    return Loading(Examples(examples, keys, places, infer(examples)), {name: name for name in files}, root)
