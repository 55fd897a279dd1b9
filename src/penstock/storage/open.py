"""Open the store of a path or URL: the one place that decides whether bytes are local or remote."""

from __future__ import annotations

import os

from .local import LocalStore
from .store import Store, is_url, split_url

# What decides where a store is and who asks: a change of it is another store.
_TOLD = (
    *("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "AIS_ENDPOINT"),
)
_LOCAL = LocalStore()
_stores: dict[tuple[object, ...], Store] = {}


def open_store(url: str) -> tuple[Store, str]:
    """Return the store of a path or URL, and the name in it.

    Stores are kept for this process as long as the environment is the same.
    """
    if not is_url(url):
        return _LOCAL, url
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
