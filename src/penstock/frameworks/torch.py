"""PyTorch: batches of tensors over the memory that the core decoded into, and a dataset for its DataLoader."""

from __future__ import annotations

import multiprocessing.context
import sys
from collections.abc import Iterator, Mapping

import numpy as np

from ..errors import ArgumentError, MissingDependencyError
from ..loading.epoch import Iteration
from ..loading.loader import Loader
from ..loading.spec import Form
from ..schema.columns import Array, Bytes, Ragged
from .conversion import Tensor, convert, refuse_missing

try:
    import torch  # type: ignore[import-not-found]
    import torch.distributed  # type: ignore[import-not-found]
    import torch.utils.data  # type: ignore[import-not-found]
except ImportError:
    raise MissingDependencyError.needed("torch", "tensors of PyTorch", extra="torch") from None

MOST_WORKERS = 1024  # of one DataLoader
BEFORE = -1  # the first iteration, which begins where the loader says

# Modules whose loaders read a whole dataset, and give each rank a part of it; with the name of the library.
DEALERS = {"accelerate.data_loader": "Accelerate", "transformers.trainer_pt_utils": "Trainer"}
COUNTERS = {**DEALERS, "transformers.trainer": "Trainer", "transformers.trainer_utils": "Trainer"}  # that ask for len()


def tensors(item: object) -> Tensor:
    """What a loader gives, as tensors: without a copy; ragged columns as jagged tensors, strings as lists."""
    return convert(item, _tensor)


def _tensor(value: object, where: str) -> Tensor:
    if isinstance(value, np.ma.MaskedArray):
        raise refuse_missing(where)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return _from_numpy(value)
    if isinstance(value, np.generic):
        return _from_numpy(np.array(value))
    if isinstance(value, Ragged):
        return _jagged(value, where)
    return value.to_list() if isinstance(value, Bytes) else value


def _from_numpy(array: Array) -> Tensor:
    """Return a tensor over the memory of an array; a read-only array is copied."""
    array = array if array.flags.writeable else array.copy()
    if array.dtype.name == "bfloat16":  # torch knows the type, but not its NumPy dtype
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _jagged(column: Ragged, where: str) -> Tensor:
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
    them each example comes once. Where a DataLoader was prepared by Accelerate, or by the Trainer of Hugging Face, that
    gives each rank its part, and the workers of each rank read all of it. Each time it is iterated is the next epoch,
    in workers too.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._state: Mapping[str, object] | None = None
        self._running: Iteration | None = None
        self._rank: tuple[int, int] | None = None  # of the process that spawned this worker
        # Workers are copies that forget: the next epoch of each, and its last, stand where all copies see them.
        self._epochs, self._last = torch.full((2, MOST_WORKERS), BEFORE, dtype=torch.int64).share_memory_()

    def __getstate__(self) -> dict[str, object]:
        state = {**self.__dict__, "_running": None}
        if multiprocessing.context.get_spawning_popen() is not None:  # a worker, which knows nothing of this rank
            state["_rank"] = self._part(DEALERS)
        return state

    def _part(self, dealers: Mapping[str, str]) -> tuple[int, int]:
        """Index and count of the part that this rank reads."""
        host = self._loader.spec.host
        if self._rank is not None:
            return self._rank
        dealer = _dealer(dealers)
        if host.given:
            if dealer is not None and host.count > 1:
                raise ArgumentError(
                    f"expected all examples on every rank, since {dealer} gives each rank its part, "
                    f"got shard({host.index}, {host.count})",
                    "to_torch",
                    "Remove shard(), or iterate a DataLoader that was not prepared",
                )
            return host.index, host.count
        if dealer is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def _dealt(self, dealers: Mapping[str, str] = DEALERS) -> tuple[Loader, int]:
        """The part of this rank and worker."""
        worker = torch.utils.data.get_worker_info()
        index, count = self._part(dealers)
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return self._loader.on_host(index * workers + number, count * workers), number

    def __iter__(self) -> Iterator[Tensor]:
        loader, worker = self._dealt()
        epoch = int(self._epochs[worker])
        if self._state is not None:
            loader = loader.resume(self._state)
        elif epoch != BEFORE and not (self._last[worker] == BEFORE and epoch == loader.next_epoch):
            loader = loader.epoch(epoch)
        self._state = None
        self._running = iter(loader)
        self._epochs[worker], self._last[worker] = loader.next_epoch, loader.next_epoch - 1
        return self._running

    def __len__(self) -> int:
        worker = torch.utils.data.get_worker_info()
        loader = self._dealt(COUNTERS)[0] if worker is None else self._loader
        return len(loader)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is. A loader that was resumed in that epoch goes on within it."""
        self._epochs.fill_(self._loader.epoch(epoch).next_epoch)

    def state_dict(self) -> dict[str, object]:
        """Where the running iteration is, in this process: small, plain values."""
        if self._running is not None:
            return dict(self._running.state())
        return dict(self._state) if self._state is not None else {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """The next iteration goes on from there."""
        self._state, self._running = state or None, None


def _dealer(modules: Mapping[str, str]) -> str | None:
    """The library among those of `modules` that called this, however far up, if it gives each rank its part.

    No library passes on whether it does; so the callers are looked at. A worker that was forked has those of its rank.
    """
    if not any(module in sys.modules for module in modules):
        return None
    frame = sys._getframe(1)  # noqa: SLF001  # inspect.currentframe() is it, by another name
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name in modules:
            return modules[name]
        frame = frame.f_back  # type: ignore[assignment]
    return None


def to_torch(loader: Loader) -> TorchDataset:
    """A loader's items as tensors."""
    return TorchDataset(loader.in_form(Form(tensors)))
