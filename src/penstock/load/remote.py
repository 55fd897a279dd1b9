"""What a shard is that lies in a store: its object, and the cache that it comes into."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import NotFoundError, StorageError
from ..storage import open_store
from ..storage.cache import Cache, RemoteFile


@dataclass(frozen=True)
class Remote:
    """A shard in a store.

    manifest  the object that says what the shard is, if there is one
    ranged    whether a record can be read by itself: not where the whole is compressed
    """

    file: RemoteFile
    cache: Cache
    manifest: RemoteFile | None = None
    ranged: bool = False

    def check_manifest(self) -> None:
        """Make sure that the dataset is still the one that was opened."""
        if self.manifest is None:
            return
        store, name = open_store(self.manifest.url)
        try:
            version = store.entry(name).version
        except NotFoundError:
            version = None
        if version != self.manifest.version:
            expected = "expected the dataset that was opened, got one that was built again"
            raise StorageError(f"{expected} - at {self.manifest.url}. Load it again")
