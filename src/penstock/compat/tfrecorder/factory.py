"""TFRecorder's factory: example classes and CSV files to folders of numbered TFRecord files, and back as datasets."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from ...errors import SchemaError
from .config import CONFIG, write_config
from .dataset import open_tuples
from .example import Example
from .options import check_options
from .writing import LOG, write_examples

PathLike = str | os.PathLike[str]
Call = TypeVar("Call", bound=Callable[..., Any])

# What its documents and its other functions call the same thing.
SPELLINGS = {
    "examples_class": "example_class",
    "examples_list_filepath": "examples_filepath",
    "examples_tfrecords_files_max_size_in_bytes": "examples_tfrecord_file_max_size_in_bytes",
}
# What all functions that write take last, by place or by name; and what splits examples.
LAST = ("examples_tfrecord_file_max_size_in_bytes", "examples_log_in_csv_file")
OWN = (*LAST, "examples_shuffle", "examples_shuffle_seed")


def _any_spelling(function: Call) -> Call:
    """The function, which takes each parameter under any of its names."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    places = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

    @wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        if inspect.Parameter.VAR_KEYWORD in kinds:
            values, last = values[:places], values[places:]
            options |= dict(zip(LAST, last, strict=False))
        for spelling, name in SPELLINGS.items():
            if spelling in options:
                if name in options:
                    raise TypeError(f"expected {name} or {spelling}, got both - at {function.__name__}")
                options[name] = options.pop(spelling)
        return function(*values, **options)

    return call  # type: ignore[return-value]


@_any_spelling
def generate_and_save_tfrecords_files_for_examples(
    save_directory_path: PathLike,
    examples: Sequence[Example],
    examples_tfrecord_file_max_size_in_bytes: float = 1e6,
    examples_log_in_csv_file: bool = True,
    **options: Any,
) -> int:
    """Examples into one folder; how many of them, without those that wished to be left out."""
    check_options({type(example) for example in examples}, options)
    folder = Path(save_directory_path)
    return write_examples(folder, examples, options, examples_tfrecord_file_max_size_in_bytes, examples_log_in_csv_file)


@_any_spelling
def generate_and_save_tfrecords_files_for_examples_file(
    save_directory_path: PathLike, example_class: type[Example], examples_filepath: PathLike, **options: Any
) -> int:
    """The examples of a CSV file into one folder."""
    examples = _listed(example_class, examples_filepath, options)
    return generate_and_save_tfrecords_files_for_examples(save_directory_path, examples, **options)


@_any_spelling
def generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path: PathLike,
    example_class: type[Example],
    examples_filepath: PathLike,
    examples_train_eval_test_ratio: float | Sequence[float] = 0.8,
    **options: Any,
) -> dict[str, int]:
    """The examples of a CSV file into the folders train, eval and, with three ratios, test."""
    examples = _listed(example_class, examples_filepath, options)
    counts = generate_and_save_train_eval_test_tfrecords_files_for_examples(
        save_directory_path, examples, examples_train_eval_test_ratio, **options
    )
    said = {"class": example_class, "filepath": examples_filepath, "ratio": examples_train_eval_test_ratio}
    write_config(Path(save_directory_path) / CONFIG, said, options, counts)
    return counts


@_any_spelling
def generate_and_save_train_eval_test_tfrecords_files_for_examples(
    save_directory_path: PathLike,
    examples: Sequence[Example],
    examples_train_eval_test_ratio: float | Sequence[float] = 0.8,
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
def generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
    save_directory_path: PathLike,
    example_class: type[Example],
    train_examples_filepath: PathLike,
    eval_examples_filepath: PathLike,
    test_examples_filepath: PathLike | None = None,
    **options: Any,
) -> dict[str, int]:
    """Each of the CSV files into its folder: train, eval, test."""
    files = {"train": train_examples_filepath, "eval": eval_examples_filepath, "test": test_examples_filepath}
    named = {name: path for name, path in files.items() if path}
    save = generate_and_save_tfrecords_files_for_examples_files_dict
    return save(save_directory_path, example_class, named, **options)


@_any_spelling
def generate_and_save_tfrecords_files_for_examples_files_dict(
    save_directory_path: PathLike,
    example_class: type[Example],
    examples_filepaths_dict: Mapping[str, PathLike],
    **options: Any,
) -> dict[str, int]:
    """Each of the CSV files into the folder that it is given for."""
    parts = {name: _listed(example_class, path, options) for name, path in examples_filepaths_dict.items()}
    return generate_and_save_tfrecords_files_for_examples_dict(save_directory_path, parts, **options)


@_any_spelling
def generate_and_save_tfrecords_files_for_examples_dict(
    save_directory_path: PathLike, examples_dict: Mapping[str, Sequence[Example]], **options: Any
) -> dict[str, int]:
    """Examples into folders, such as the folds of a cross-validation: {"fold_0": [...], "fold_1": [...]}."""
    save = generate_and_save_tfrecords_files_for_examples
    folder = Path(save_directory_path)
    return {name: save(folder / name, examples, **options) for name, examples in examples_dict.items()}


@_any_spelling
def generate_dataset(
    tfrecords_filepaths: Sequence[PathLike],
    example_class: type[Example] | None = None,
    dataset_num_shuffled_tfrecord_files: int | None = None,
    dataset_fetching_num_threads: int | None = None,
    dataset_shuffle_seed: int | None = None,
) -> Any:
    """A tf.data.Dataset of tuples, one for each record, in the order in which the class declares their parts.

    The class need not be given for records that were written here.
    """
    paths = [os.fspath(path) for path in tfrecords_filepaths]
    shuffled, threads = dataset_num_shuffled_tfrecord_files, dataset_fetching_num_threads
    return open_tuples(paths, example_class, shuffled, threads, dataset_shuffle_seed)


def get_tfrecord_filepaths(dirpath: PathLike) -> list[str]:
    """The record files of a folder, in the order in which they were written."""
    found = [path for path in Path(_folder(dirpath)).glob("*.tfr") if path.stem.isdecimal()]
    return [str(path) for path in sorted(found, key=lambda path: int(path.stem))]


def get_examples_list_filepaths(dirpath: PathLike) -> str:
    """The CSV file that tells which examples are in a folder."""
    return os.path.join(_folder(dirpath), LOG)


def split_examples_list(
    examples: Sequence[Example], examples_train_eval_test_ratio: float | Sequence[float]
) -> tuple[Sequence[Example], Sequence[Example], Sequence[Example] | None]:
    """Three parts by ratios, train, eval and test; without a third ratio, and where nothing is left for it, two."""
    asked = examples_train_eval_test_ratio
    ratios = [float(asked)] if isinstance(asked, (int, float)) else list(asked)
    if len(ratios) == 1:
        ratios = [*ratios, 1 - ratios[0]]
    if len(ratios) not in (2, 3) or min(ratios) < 0 or abs(sum(ratios) - 1) > 1e-9:
        expected = "expected one ratio up to 1, or two or three that sum to 1, for train, eval and test"
        raise SchemaError(f"{expected}, got {asked!r}", "examples_train_eval_test_ratio")
    first = int(len(examples) * ratios[0])
    second = first + int(len(examples) * ratios[1]) if len(ratios) == 3 else len(examples)
    return examples[:first], examples[first:second], examples[second:] or None


def _listed(kind: type[Example], path: PathLike, options: Mapping[str, Any]) -> list[Example]:
    """The examples of a CSV file, each given what it takes of the options that are not the factory's own."""
    own = {name: value for name, value in options.items() if name not in OWN}
    check_options([kind], own)
    return list(kind.from_csv_file(path, **own))


def _folder(path: PathLike) -> str:
    if not os.path.isdir(path):
        raise SchemaError("expected a folder, got none", os.fspath(path))
    return os.fspath(path)
