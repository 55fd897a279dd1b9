"""Open the store of a URL."""

from __future__ import annotations

import os
from typing import Any

from .store import Store, split_url

# What decides where a store is and who asks: a change of it is another store.
_TOLD = (
    *("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "AIS_ENDPOINT"),
)
_stores: dict[tuple[Any, ...], Store] = {}


def open_store(url: str) -> tuple[Store, str]:
    """The store of a URL, kept for this process as long as the environment says the same; and the object's name."""
    root, name = split_url(url)
    key = (os.getpid(), root, *map(os.environ.get, _TOLD))
    if key not in _stores:
        _stores[key] = _opened(root)
    return _stores[key], name


def _opened(root: str) -> Store:
    if root.startswith("ais://"):
        from .aistore import AISStore  # type: ignore[import-not-found, unused-ignore]

        made: Store = AISStore(root)
        return made
    from .object_store import Objects

    return Objects(root)
