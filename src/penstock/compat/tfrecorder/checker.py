"""TFRecorder's checks that examples come back from record files as they were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ...sources.example_classes import deal
from . import factory
from .example import METHODS, Example
from .folder import LOG


def assert_example_serialize_deserialize_is_ok(
    example: Example | list[Example], tfrecords_files_max_size_in_bytes: float = 1e6, **kwargs: Any
) -> bool:
    """Write examples to record files by way of a CSV file, read the records, and compare. True, or AssertionError."""
    examples = example if isinstance(example, list) else [example]
    with TemporaryDirectory() as folder:
        listed, saved = Path(folder, LOG), Path(folder, "saved")
        Example.to_csv_file(listed, examples)
        size = {"examples_tfrecord_file_max_size_in_bytes": tfrecords_files_max_size_in_bytes}
        factory.generate_and_save_tfrecords_files_for_examples_file(saved, type(examples[0]), listed, **size, **kwargs)
        assert Path(factory.get_examples_list_filepaths(saved)).exists(), f"expected {LOG} in {saved}, got none"
        dataset = generate_test_dataset(factory.get_tfrecord_filepaths(saved), type(examples[0]))
        assert_examples_content_matches_dataset_content(examples, dataset, **kwargs)
    return True


def assert_examples_content_matches_dataset_content(examples: Iterable[Example], dataset: Any, **kwargs: Any) -> None:
    """Load and split examples, and compare what they store with the elements of a dataset, one by one."""
    for count, (chunk, tensors) in enumerate(zip(_chunks(examples, kwargs), dataset.as_numpy_iterator(), strict=True)):
        for name, found in zip(chunk.get_tfrecordable_attribute_names(), tensors, strict=True):
            expected = getattr(chunk, name)
            if isinstance(expected, np.ndarray):
                same = np.array_equal(expected, found.reshape(expected.shape))
            elif isinstance(expected, str):
                same = expected == found.decode()
            else:
                same = np.asarray(expected).astype(found.dtype) == found
            assert same, f"expected {expected!r}, got {found!r} - at element {count}, {name}"


def _chunks(examples: Iterable[Example], options: dict[str, Any]) -> Iterator[Example]:
    for example in examples:
        given = deal([type(example)], options, METHODS, base=Example)[type(example)]
        example.load(**given["load"])
        yield from example.split(**given["split"])


def generate_test_dataset(
    tfrecords_filepaths: Any,
    example_class: type[Example],
    dataset_batch_size: int = 0,
    dataset_batch_drop_remainder: bool = False,
    dataset_fetching_num_threads: int = 1,
) -> Any:
    """The records in the order in which they were written; unbatched, where the size of batches is 0."""
    threads = dataset_fetching_num_threads
    dataset = factory.generate_dataset(tfrecords_filepaths, example_class, dataset_fetching_num_threads=threads)
    batched = dataset.batch(dataset_batch_size, dataset_batch_drop_remainder) if dataset_batch_size else dataset
    return batched.prefetch(1)
