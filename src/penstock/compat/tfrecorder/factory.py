"""TFRecorder's factory: example classes and CSV files to folders of numbered TFRecord files, and back as datasets."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from ...errors import NotFoundError, SchemaError
from ...records.schema_file import read_schema
from ...schema import Schema
from ...storage import expand
from .example import Example, parse
from .folder import LOG, OPTIONS, save, write_config

Call = TypeVar("Call", bound=Callable[..., Any])
Examples = Sequence[Example]

# What its documents and its other functions call the same thing.
SPELLINGS = {
    "examples_class": "example_class",
    "examples_list_filepath": "examples_filepath",
    "examples_tfrecords_files_max_size_in_bytes": "examples_tfrecord_file_max_size_in_bytes",
}


def _any_spelling(function: Call) -> Call:
    """The function, which takes each parameter under any of its names; one that writes takes two more at the end."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    places = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

    @wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        if inspect.Parameter.VAR_KEYWORD in kinds:
            options |= dict(zip(OPTIONS, values[places:], strict=False))
            values = values[:places]
        for spelling in [name for name in SPELLINGS if name in options]:
            if SPELLINGS[spelling] in options:
                raise TypeError(f"expected {SPELLINGS[spelling]} or {spelling}, got both - at {function.__name__}")
            options[SPELLINGS[spelling]] = options.pop(spelling)
        return function(*values, **options)

    return call  # type: ignore[return-value]


@_any_spelling
def generate_and_save_tfrecords_files_for_examples(save_directory_path: Any, examples: Examples, **options: Any) -> int:
    """Examples into one folder; how many of them, without those that wished to be left out."""
    return save(Path(save_directory_path), examples, options)


@_any_spelling
def generate_and_save_tfrecords_files_for_examples_file(
    save_directory_path: Any, example_class: type[Example], examples_filepath: Any, **options: Any
) -> int:
    """The examples of a CSV file into one folder."""
    return save(Path(save_directory_path), _listed(example_class, examples_filepath, options), options)


@_any_spelling
def generate_and_save_tfrecords_files_for_examples_dict(
    save_directory_path: Any, examples_dict: Mapping[str, Examples], **options: Any
) -> dict[str, int]:
    """Examples into folders, such as the folds of a cross-validation: {"fold_0": [...], "fold_1": [...]}."""
    return {name: save(Path(save_directory_path) / name, some, options) for name, some in examples_dict.items()}


@_any_spelling
def generate_and_save_tfrecords_files_for_examples_files_dict(
    save_directory_path: Any, example_class: type[Example], examples_filepaths_dict: Mapping[str, Any], **options: Any
) -> dict[str, int]:
    """Each of the CSV files into the folder that it is given for."""
    parts = {name: _listed(example_class, path, options) for name, path in examples_filepaths_dict.items() if path}
    return generate_and_save_tfrecords_files_for_examples_dict(save_directory_path, parts, **options)


@_any_spelling
def generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
    save_directory_path: Any,
    example_class: type[Example],
    train_examples_filepath: Any,
    eval_examples_filepath: Any,
    test_examples_filepath: Any = None,
    **options: Any,
) -> dict[str, int]:
    """Each of the CSV files into its folder: train, eval, test."""
    files = {"train": train_examples_filepath, "eval": eval_examples_filepath, "test": test_examples_filepath}
    generate = generate_and_save_tfrecords_files_for_examples_files_dict
    return generate(save_directory_path, example_class, files, **options)


@_any_spelling
def generate_and_save_train_eval_test_tfrecords_files_for_examples(
    save_directory_path: Any,
    examples: Examples,
    examples_train_eval_test_ratio: Any = 0.8,
    examples_shuffle: bool = True,
    *,
    examples_shuffle_seed: int = 0,
    **options: Any,
) -> dict[str, int]:
    """Examples into the folders train, eval and, with three ratios, test. The list itself stays as it is."""
    shuffled = list(examples)
    if examples_shuffle:
        random.Random(examples_shuffle_seed).shuffle(shuffled)
    train, evaluation, test = split_examples_list(shuffled, examples_train_eval_test_ratio)
    parts = {"train": train, "eval": evaluation} | ({"test": test} if test else {})
    return generate_and_save_tfrecords_files_for_examples_dict(save_directory_path, parts, **options)


@_any_spelling
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
    write_config(Path(save_directory_path), said, options, counts)
    return counts


@_any_spelling
def generate_dataset(
    tfrecords_filepaths: Sequence[Any],
    example_class: type[Example] | None = None,
    dataset_num_shuffled_tfrecord_files: int | None = None,
    dataset_fetching_num_threads: int | None = None,
    dataset_shuffle_seed: int | None = None,
) -> Any:
    """A tf.data.Dataset of tuples, one for each record, in the order in which the class declares their parts.

    Shuffled, the files come in another order, and records among so many. What was written here needs no class.
    """
    from ...frameworks.tensorflow import tf

    paths, buffer, seed = (
        [*map(os.fspath, tfrecords_filepaths)],
        dataset_num_shuffled_tfrecord_files,
        dataset_shuffle_seed,
    )
    schema = read_schema(paths)
    if schema is None and example_class is not None:
        schema = Schema(example_class.get_tfrecordable_ordered_dict())
    if schema is None:
        hint = "Say which class the records are of: generate_dataset(paths, example_class)"
        raise NotFoundError(f"expected a schema beside the records, got none - at {', '.join(paths[:1])}. {hint}")
    files = tf.data.Dataset.from_tensor_slices(tf.constant(paths, tf.string))
    files = files.shuffle(len(paths), seed) if buffer else files
    records = files.flat_map(tf.data.TFRecordDataset)
    records = records.shuffle(buffer, seed) if buffer else records
    return records.map(lambda record: parse(record, schema), num_parallel_calls=dataset_fetching_num_threads)


def get_tfrecord_filepaths(dirpath: Any) -> list[str]:
    """The record files of a folder, in the order in which they were written."""
    return expand(os.path.join(_folder(dirpath), "{0..}.tfr"))


def get_examples_list_filepaths(dirpath: Any) -> str:
    """The CSV file that tells which examples are in a folder."""
    return os.path.join(_folder(dirpath), LOG)


def split_examples_list(examples: Examples, examples_train_eval_test_ratio: Any) -> tuple[Any, Any, Any]:
    """Three parts by ratios, train, eval and test; without a third ratio, and where nothing is left for it, two."""
    asked = examples_train_eval_test_ratio
    ratios = [asked, 1 - asked] if isinstance(asked, (int, float)) else list(asked)
    ratios = [*ratios, 1 - ratios[0]] if len(ratios) == 1 else ratios
    if len(ratios) not in (2, 3) or min(ratios) < 0 or abs(sum(ratios) - 1) > 1e-9:
        expected = "expected one ratio up to 1, or two or three that sum to 1, for train, eval and test"
        raise SchemaError(f"{expected}, got {asked!r}", "examples_train_eval_test_ratio")
    first = int(len(examples) * ratios[0])
    second = first + int(len(examples) * ratios[1]) if len(ratios) == 3 else len(examples)
    return examples[:first], examples[first:second], examples[second:] or None


def _listed(kind: type[Example], path: Any, options: Mapping[str, Any]) -> list[Example]:
    """The examples of a CSV file, each given what it takes of the options that are not the factory's own."""
    own = (*OPTIONS, "examples_shuffle", "examples_shuffle_seed")
    return kind.from_csv_file(path, **{name: value for name, value in options.items() if name not in own})


def _folder(path: Any) -> str:
    if not os.path.isdir(path):
        raise SchemaError("expected a folder, got none", str(path))
    return str(path)
