"""PyTorch: batches of tensors over the memory that the core decoded into, and a dataset for its DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..columns import Array, Bytes, Ragged
from ..errors import MissingDependencyError
from ..load.iteration import Iteration
from ..load.loader import Loader
from ..load.recipe import Form
from .conversion import convert, refuse_missing

try:
    import torch  # type: ignore[import-not-found]
    import torch.distributed  # type: ignore[import-not-found]
    import torch.utils.data  # type: ignore[import-not-found]
except ImportError:
    raise MissingDependencyError.needed("torch", "tensors of PyTorch", extra="torch") from None

MOST_WORKERS = 1024  # of one DataLoader
BEFORE = -1  # the first iteration, which begins where the loader says


def tensors(item: Any) -> Any:
    """What a loader gives, as tensors: without a copy; ragged columns as jagged tensors, strings as lists."""
    return convert(item, _tensor)


def _tensor(value: Any, where: str) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        raise refuse_missing(where)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return _from_numpy(value)
    if isinstance(value, np.generic):
        return _from_numpy(np.array(value))
    if isinstance(value, Ragged):
        return _jagged(value, where)
    return value.to_list() if isinstance(value, Bytes) else value


def _from_numpy(array: Array) -> Any:
    """Return a tensor over the memory of an array; a read-only array is copied."""
    array = array if array.flags.writeable else array.copy()
    if array.dtype.name == "bfloat16":  # torch knows the type, but not its NumPy dtype
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _jagged(column: Ragged, where: str) -> Any:
    if column.present is not None:
        raise refuse_missing(where)
    if not isinstance(column.values, np.ndarray):
        return column.to_list()
    if column.shapes is not None:
        return [_from_numpy(row) for row in column]
    return torch.nested.nested_tensor_from_jagged(
        _from_numpy(column.values), torch.from_numpy(np.ascontiguousarray(column.row_splits))
    )


class TorchDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch is not there when types are checked
    """A loader as torch wants it: iterate it, or give it to `DataLoader(dataset, batch_size=None)`.

    Within torch.distributed every rank reads its part, and so does every worker process of a DataLoader: over all of
    them each example comes once. Each time it is iterated is the next epoch, in workers too.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._state: Mapping[str, Any] | None = None
        self._running: Iteration | None = None
        # Workers are copies that forget: what epoch each is at stands where all copies see it.
        self._epochs = torch.full((MOST_WORKERS,), BEFORE, dtype=torch.int64).share_memory_()

    def _dealt(self) -> tuple[Loader, int]:
        """The part of this rank and worker."""
        host, worker = self._loader._recipe.host, torch.utils.data.get_worker_info()
        index, count = host.index, host.count
        if count == 1 and torch.distributed.is_available() and torch.distributed.is_initialized():
            index, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return self._loader._dealt(index * workers + number, count * workers), number

    def __iter__(self) -> Iterator[Any]:
        loader, worker = self._dealt()
        epoch = int(self._epochs[worker])
        if self._state is not None:
            loader = loader.resume(self._state)
        elif epoch != BEFORE:
            loader = loader.epoch(epoch)
        self._state = None
        self._running = iter(loader)
        self._epochs[worker] = loader._next
        return self._running

    def __len__(self) -> int:
        worker = torch.utils.data.get_worker_info()
        loader = self._dealt()[0] if worker is None else self._loader
        return len(loader)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is."""
        self._epochs.fill_(self._loader.epoch(epoch)._next)

    def state_dict(self) -> dict[str, Any]:
        """Where the running iteration is, in this process: small, plain values."""
        if self._running is not None:
            return dict(self._running.state())
        return dict(self._state) if self._state is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on from there."""
        self._state, self._running = state or None, None


def to_torch(loader: Loader) -> TorchDataset:
    """A loader's items as tensors."""
    return TorchDataset(loader._in_form(Form(tensors)))
