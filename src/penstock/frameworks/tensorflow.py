"""TensorFlow: a loader as a tf.data.Dataset, fed by the core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..errors import MissingDependencyError, SchemaError
from ..loading.loader import Loader
from ..loading.spec import Batch, Interleave, LoadSpec, Map
from ..schema.columns import Bytes, Ragged
from ..schema.field import image_options
from .conversion import Tensor, convert

try:
    import tensorflow as tf  # type: ignore[import-untyped]
except ImportError:
    raise MissingDependencyError.needed("tensorflow", "tensors of TensorFlow", extra="tensorflow") from None

TfDataset: TypeAlias = Tensor
"""A tf.data.Dataset."""
MaskedArray: TypeAlias = "np.ma.MaskedArray[Any, Any]"
CHUNK_BYTES = 8 << 20  # of small batches that cross into TensorFlow together: each crossing has its price
MOST_BATCHES = 64
AHEAD = 2  # of them that are ready when one is asked for

__all__ = ["tensors", "tf", "to_tf"]  # who wants TensorFlow takes it from here: its absence is told above


def to_tf(loader: Loader, *, element_spec: object = None, graph: bool | Interleave = False) -> TfDataset:
    """A loader's items as a dataset; with graph=True one that TensorFlow runs by itself."""
    if graph:
        from .tensorflow_graph import graph_dataset

        return graph_dataset(loader, graph if isinstance(graph, Interleave) else None)
    loader = copy(loader)  # its cursor moves with the dataset's epochs, not with those of the loader given
    first = next(iter(Loader(loader.spec)), None)
    if first is None:
        raise SchemaError("expected examples, got none", "to_tf")
    spec = _spec(first, loader) if element_spec is None else element_spec
    together = _batches_at_once(loader, first)
    if together > 1:
        batch = loader.spec.steps[-1]
        assert isinstance(batch, Batch)
        larger = replace(loader.spec, steps=(replace(batch, size=batch.size * together, drop_remainder=False),))
        whole = convert(spec, lambda leaf, _: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype))
        dataset = _generated(Loader(larger).epoch(loader.next_epoch), whole)
        return _counted(dataset.rebatch(batch.size, drop_remainder=batch.drop_remainder), loader)
    return _counted(_generated(loader, spec), loader)


def _generated(loader: Loader, spec: object) -> TfDataset:
    def items() -> Iterator[Tensor]:
        with iter(loader) as iteration:
            for item in iteration:
                yield tensors(item)

    # TensorFlow's tuner sleeps longer and longer, and the end of an epoch waits for it: seconds with TensorFlow 2.21.
    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    return tf.data.Dataset.from_generator(items, output_signature=spec).prefetch(AHEAD).with_options(untuned)


def _counted(dataset: TfDataset, loader: Loader) -> TfDataset:
    """With its number of elements, where each epoch is known to have that many: Keras asks for it."""
    try:
        count = len(loader) if not loader.cursor.next.is_inside and loader.spec.on_error == "raise" else None
    except TypeError:
        count = None
    return dataset if count is None else dataset.apply(tf.data.experimental.assert_cardinality(count))


def tensors(item: object) -> Tensor:
    """What a loader gives, as from_generator takes it: arrays, ragged and sparse tensors."""
    return convert(item, _tensor)


def _tensor(value: object, where: str) -> Tensor:
    if isinstance(value, np.ma.MaskedArray):
        return _sparse(value)
    if isinstance(value, Bytes):
        return _strings(value)
    if isinstance(value, Ragged):
        return _ragged(value)
    return value


def _strings(column: Bytes) -> Tensor:
    """An array of bytes; a sparse tensor where some are missing."""
    array = column.to_numpy()
    encode = np.vectorize(lambda text: text.encode() if isinstance(text, str) else text or b"", otypes=[object])
    encoded = encode(array) if array.size else array
    if column.present is None:
        return encoded
    there = np.flatnonzero(column.present)
    return tf.SparseTensor(there[:, None], tf.constant(encoded[there].tolist(), tf.string), [len(column)])


def _sparse(column: MaskedArray) -> Tensor:
    there = np.argwhere(~np.ma.getmaskarray(column))
    return tf.SparseTensor(there, column.data[tuple(there.T)], column.shape)


def _ragged(column: Ragged) -> Tensor:
    """A ragged tensor: a level for each dimension that is not the same in all rows."""
    values = column.values
    if column.shapes is not None:
        return _shaped(np.asarray(values), column.shapes)
    inner = _ragged(values) if isinstance(values, Ragged) else _strings(values) if isinstance(values, Bytes) else values
    return tf.RaggedTensor.from_row_splits(inner, column.row_splits, validate=False)


def _shaped(values: Tensor, shapes: Tensor) -> Tensor:
    """Rows with a shape each: levels for all dimensions but the last, which stays whole where it is the same."""
    count, rank = shapes.shape
    last = np.unique(shapes[:, -1])
    uniform = len(last) == 1 and rank > 1
    levels, owner = [], np.arange(count)
    for dimension in range(rank - uniform):
        lengths = shapes[owner, dimension]
        levels.append(lengths)
        owner = np.repeat(owner, lengths)
    flat = values.reshape(-1, int(last[0])) if uniform else values
    return tf.RaggedTensor.from_nested_row_lengths(flat, levels, validate=False)


# What the elements are


def _spec(first: object, loader: Loader) -> Tensor:
    """The spec of items like the first one: sizes that may be others in other items are None."""
    spec = loader.spec
    batches = spec.stage == "batches"
    batch = next((step for step in spec.steps if isinstance(step, Batch)), None)
    size = batch.size if batch is not None and batch.drop_remainder else None
    mapped = any(isinstance(step, Map) for step in spec.steps)
    loose = _loose_fields(spec) if not mapped else set()
    padded = mapped and getattr(batch, "pad", None) is not None

    def leaf(value: object, where: str) -> Tensor:
        found = _tensor(value, where)
        if isinstance(found, tf.RaggedTensor):
            inner = found.flat_values.shape[1:].as_list()
            levels = [None] * (found.ragged_rank + 1)
            return tf.RaggedTensorSpec([size, *levels[1:], *inner], found.dtype, found.ragged_rank)
        if isinstance(found, tf.SparseTensor):
            return tf.SparseTensorSpec([size, *found.shape[1:]], found.dtype)
        text = isinstance(found, (str, bytes)) or np.asarray(found).dtype.kind == "O"
        dtype = tf.string if text else tf.as_dtype(np.asarray(found).dtype)
        shape: list[int | None] = list(np.shape(found)) if not isinstance(found, (str, bytes)) else []
        if batches and shape:
            shape[0] = size
        if where in loose or padded:
            shape = [size if batches else None, *(None for _ in shape[1:])] if shape else shape
        return tf.TensorSpec(shape, dtype)

    return convert(first, leaf)


def _loose_fields(spec: LoadSpec) -> set[str]:
    """Fields whose examples differ in size; images do not where they are decoded to one."""
    sized = {
        name
        for name, image in image_options(spec.schema.leaves(), spec.decode).items()
        if image.size and image.channels
    }
    fields = (leaf for leaf in spec.schema.leaves() if leaf.name not in sized)
    return {leaf.name for leaf in fields if leaf.levels or None in leaf.shape or leaf.kind == "image"}


def _batches_at_once(loader: Loader, first: object) -> int:
    """How many batches the core may make as one, to be cut by TensorFlow: of plain arrays only."""
    spec = loader.spec
    if not (len(spec.steps) == 1 and isinstance(spec.steps[0], Batch) and spec.steps[0].pad is None):
        return 1
    if loader.cursor.next.is_inside or spec.on_error != "raise" or not isinstance(first, dict):
        return 1
    columns: Sequence[Tensor] = list(first.values())
    if not all(type(column) is np.ndarray and column.dtype.kind != "O" for column in columns):
        return 1
    size = sum(column.nbytes for column in columns)
    return int(max(1, min(MOST_BATCHES, CHUNK_BYTES // max(1, size))))
