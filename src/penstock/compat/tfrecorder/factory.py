"""The arguments of TFRecorder's factory, under the names of its documents and under those of its code."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from ...errors import SchemaError
from ...storage.files import bring_all, checked_path, is_folder, join_path, local_copies
from ...storage.paths import Paths, numbered_files, path_list
from .example import Example, parse, schema_of
from .example import Examples as Listed
from .folder import FILES, LOG, OPTIONS, SHUFFLES, save, write_config

Call = TypeVar("Call", bound=Callable[..., Any])

# What its documents and its other functions call the same thing.
SPELLINGS = {
    "examples_class": "example_class",
    "examples_list_filepath": "examples_filepath",
    "examples_tfrecords_files_max_size_in_bytes": "examples_tfrecord_file_max_size_in_bytes",
}


def any_spelling(function: Call) -> Call:
    """The function, which takes each parameter under any of its names; one that writes takes two more at the end."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    places = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

    @wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        if inspect.Parameter.VAR_KEYWORD in kinds:
            last = dict(zip(OPTIONS, values[places:], strict=False))
            if len(values) > places + len(OPTIONS) or last.keys() & options.keys():
                raise TypeError(f"expected each argument once, got more - at {function.__name__}")
            options |= last
            values = values[:places]
        for spelling in [name for name in SPELLINGS if name in options]:
            if SPELLINGS[spelling] in options:
                raise TypeError(f"expected {SPELLINGS[spelling]} or {spelling}, got both - at {function.__name__}")
            options[SPELLINGS[spelling]] = options.pop(spelling)
        return function(*values, **options)

    return call  # type: ignore[return-value]


Examples = Sequence[Example]
PARSE = "parse_from_string"


@any_spelling
def generate_and_save_tfrecords_files_for_examples(save_directory_path: Any, examples: Examples, **options: Any) -> int:
    """Examples into one folder; how many of them, without those that wished to be left out."""
    return save(checked_path(save_directory_path), {"": examples}, options)[""]


@any_spelling
def generate_and_save_tfrecords_files_for_examples_file(
    save_directory_path: Any, example_class: type[Example], examples_filepath: Any, **options: Any
) -> int:
    """The examples of a CSV file into one folder."""
    return save(checked_path(save_directory_path), {"": _listed(example_class, examples_filepath, options)}, options)[
        ""
    ]


@any_spelling
def generate_and_save_tfrecords_files_for_examples_dict(
    save_directory_path: Any, examples_dict: Mapping[str, Examples], **options: Any
) -> dict[str, int]:
    """Examples into folders, such as the folds of a cross-validation: {"fold_0": [...], "fold_1": [...]}."""
    return save(checked_path(save_directory_path), examples_dict, options)


@any_spelling
def generate_and_save_tfrecords_files_for_examples_files_dict(
    save_directory_path: object,
    example_class: type[Example],
    examples_filepaths_dict: Mapping[str, Any],
    **options: Any,
) -> dict[str, int]:
    """Each of the CSV files into the folder that it is given for."""
    parts = {name: _listed(example_class, path, options) for name, path in examples_filepaths_dict.items() if path}
    return generate_and_save_tfrecords_files_for_examples_dict(save_directory_path, parts, **options)


@any_spelling
def generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
    save_directory_path: object,
    example_class: type[Example],
    train_examples_filepath: object,
    eval_examples_filepath: object,
    test_examples_filepath: object = None,
    **options: Any,
) -> dict[str, int]:
    """Each of the CSV files into its folder: train, eval, test."""
    _check_test(save_directory_path, test_examples_filepath)
    files = {"train": train_examples_filepath, "eval": eval_examples_filepath, "test": test_examples_filepath}
    generate = generate_and_save_tfrecords_files_for_examples_files_dict
    return generate(save_directory_path, example_class, files, **options)


@any_spelling
def generate_and_save_train_eval_test_tfrecords_files_for_examples(
    save_directory_path: object,
    examples: Examples,
    examples_train_eval_test_ratio: object = 0.8,
    examples_shuffle: bool = True,
    *,
    examples_shuffle_seed: int = 0,
    **options: Any,
) -> dict[str, int]:
    """Examples into the folders train, eval and, with three ratios, test. The list itself stays as it is."""
    given = Listed.of(examples)
    shuffled = list(given)
    if examples_shuffle:
        random.Random(examples_shuffle_seed).shuffle(shuffled)
    train, evaluation, test = split_examples_list(shuffled, examples_train_eval_test_ratio)
    found = {"train": train, "eval": evaluation} | ({"test": test} if test else {})
    parts = {name: given.having(part) for name, part in found.items()}
    _check_test(save_directory_path, test)
    return generate_and_save_tfrecords_files_for_examples_dict(save_directory_path, parts, **options)


@any_spelling
def generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path: Any,
    example_class: type[Example],
    examples_filepath: Any,
    examples_train_eval_test_ratio: Any = 0.8,
    **options: Any,
) -> dict[str, int]:
    """The examples of a CSV file into such folders, and what was asked for into a config file."""
    examples, ratio = _listed(example_class, examples_filepath, options), examples_train_eval_test_ratio
    generate = generate_and_save_train_eval_test_tfrecords_files_for_examples
    counts = generate(save_directory_path, examples, ratio, **options)
    said = {"class_name": example_class.__name__, "list_filepath": examples_filepath, "train_eval_test_ratio": ratio}
    write_config(checked_path(save_directory_path), said, options, counts)
    return counts


@any_spelling
def generate_dataset(
    tfrecords_filepaths: Paths,
    example_class: type[Example] | None = None,
    dataset_num_shuffled_tfrecord_files: int | None = None,
    dataset_fetching_num_threads: int | None = None,
    dataset_shuffle_seed: int | None = None,
) -> Any:
    """A tf.data.Dataset of tuples, one for each record, in the order in which the class declares their parts.

    Shuffled, the files come in another order, and records among so many. What was written here needs no class.
    """
    from ...frameworks.tensorflow import tf

    urls = path_list(tfrecords_filepaths)
    paths = bring_all(local_copies(urls))
    buffer, seed = dataset_num_shuffled_tfrecord_files, dataset_shuffle_seed
    schema = schema_of(urls, example_class)
    files = tf.data.Dataset.from_tensor_slices(tf.constant(paths, tf.string))
    files = files.shuffle(len(paths), seed) if buffer else files
    records = files.flat_map(tf.data.TFRecordDataset)
    records = records.shuffle(buffer, seed) if buffer else records
    parser: Callable[[Any], Any] = partial(parse, schema=schema)
    if example_class is not None and inspect.getattr_static(example_class, PARSE) is not vars(Example)[PARSE]:
        parser = example_class.parse_from_string  # one of its own
    return records.map(parser, num_parallel_calls=dataset_fetching_num_threads)


def get_tfrecord_filepaths(dirpath: object) -> list[str]:
    """The record files of a folder, in the order in which they were written."""
    return list(numbered_files(join_path(_folder(dirpath), FILES)).values())


def get_examples_list_filepaths(dirpath: object) -> str:
    """The CSV file that tells which examples are in a folder."""
    return join_path(_folder(dirpath), LOG)


def split_examples_list(examples: Examples, examples_train_eval_test_ratio: Any) -> tuple[Any, Any, Any]:
    """Three parts by ratios, train, eval and test; without a third ratio, and where nothing is left for it, two."""
    asked = examples_train_eval_test_ratio
    ratios = list(asked) if isinstance(asked, (list, tuple, np.ndarray)) else [asked]
    if len(ratios) == 1 and isinstance(ratios[0], Real):
        ratios = [*ratios, 1 - ratios[0]]
    numbers = all(isinstance(ratio, Real) and float(ratio) >= 0 for ratio in ratios)
    if len(ratios) not in (2, 3) or not numbers or not abs(sum(ratios) - 1) < 1e-6:
        expected = "expected one ratio up to 1, or two or three that sum to 1, for train, eval and test"
        raise SchemaError(f"{expected}, got {asked!r}", "examples_train_eval_test_ratio")
    first = int(len(examples) * ratios[0])
    second = first + int(len(examples) * ratios[1]) if len(ratios) == 3 else len(examples)
    return examples[:first], examples[first:second], examples[second:] if len(examples) > second else None


def _check_test(root: Any, test: Any) -> None:
    """That no folder of an earlier run is taken for a part of this one, which has no examples for it."""
    before = join_path(checked_path(root), "test")
    if not test and (os.path.exists(before) or is_folder(before)):
        hint = "Its examples may be in train now: take it away first"
        raise SchemaError("expected no folder for test, which has no examples, got one of an earlier run", before, hint)


def _listed(kind: type[Example], path: object, options: Mapping[str, Any]) -> list[Example]:
    """The examples of a CSV file, each given what it takes of the options that are not the factory's own."""
    if not (isinstance(kind, type) and issubclass(kind, Example)):
        raise SchemaError(f"expected a class of examples, got {kind!r}", "example_class")
    own = {*OPTIONS, *SHUFFLES}
    return kind.from_csv_file(path, **{name: value for name, value in options.items() if name not in own})


def _folder(path: Any) -> str:
    if not is_folder(checked_path(path)):
        raise SchemaError("expected a folder, got none", str(path))
    return str(path)
