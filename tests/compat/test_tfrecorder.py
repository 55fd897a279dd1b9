"""TFRecorder's door: its documented code runs, with its record encoding, and without its faults."""

from __future__ import annotations

import configparser
import csv
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.compat.tfrecorder import Example, IgnoreExampleException, checker, constants, tfrecordable
from penstock.compat.tfrecorder import factory as tf_factory

tf = pytest.importorskip("tensorflow")


class ToyExample(Example):
    """The class of its documents. (There, `split` names an attribute and arguments that the class does not have.)"""

    def __init__(self, name, label):
        super(ToyExample, self).__init__()  # noqa: UP008
        self.name = name
        self._label = label
        self._data = None

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self):
        return self._label

    @label.setter
    def label(self, val):
        self._label = val

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self):
        return self._data

    @data.setter
    def data(self, val):
        self._data = val

    def load(self, src_data_dirpath=None, normalize=False, **kwargs):
        data = np.load(os.path.join(src_data_dirpath, f"{self.name}.npy"))
        if normalize:
            data /= np.max(data)
        self.data = data

    def split(self, chunk_size_in_bins=5, **kwargs):
        chunked_examples = []
        for i in range(0, self.data.shape[0], chunk_size_in_bins):
            chunked_example = ToyExample(self.name, self._label)
            chunked_example.data = self.data[i : i + chunk_size_in_bins]
            chunked_examples.append(chunked_example)
        return chunked_examples

    @staticmethod
    def from_csv_row(row, **kwargs):
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        return [self.name, self._label]


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """Ten recordings of 12 numbers, and the CSV file that lists them."""
    (tmp_path / "data").mkdir()
    for number in range(10):
        np.save(tmp_path / "data" / f"n{number}.npy", np.arange(1, 13, dtype=np.float32) + number)
    (tmp_path / "examples.csv").write_text("".join(f"n{number},{number}\n" for number in range(10)))
    return tmp_path


def tuples(dataset: Any) -> list[tuple[Any, ...]]:
    return [tuple(part.numpy() for part in item) for item in dataset]


def test_the_documented_code_runs(toys: Path) -> None:
    tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        save_directory_path=toys / "saved",
        example_class=ToyExample,
        examples_list_filepath=toys / "examples.csv",
        src_data_dirpath=toys / "data",
        normalize=True,
        chunk_size_in_bins=5,
    )
    tfrecord_filepaths = tf_factory.get_tfrecord_filepaths(dirpath=toys / "saved" / "train")
    dataset = tf_factory.generate_dataset(tfrecord_filepaths)

    assert dataset.element_spec == (tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.float32))
    found = tuples(dataset)
    rows = list(csv.reader((toys / "saved" / "train" / "examples.csv").open(newline="")))
    assert len(rows) == 8
    assert len(found) == 24  # three pieces each
    expected = np.arange(1, 13, dtype=np.float32) + int(rows[0][1])
    expected /= expected.max()
    assert [label for label, _ in found[:3]] == [int(rows[0][1])] * 3
    np.testing.assert_array_equal(np.concatenate([data for _, data in found[:3]]), expected)
    assert not (toys / "saved" / "test").exists()
    with_class = tf_factory.generate_dataset(tfrecord_filepaths, ToyExample)
    assert str(tuples(with_class)) == str(found)


def test_its_own_spellings_and_places_work_too(toys: Path) -> None:
    options = {"src_data_dirpath": str(toys / "data"), "chunk_size_in_bins": 12}
    counts = tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        toys / "one", examples_class=ToyExample, examples_filepath=toys / "examples.csv", **options
    )
    assert counts == {"train": 8, "eval": 2}
    # By place: the size, and whether to log, come last.
    tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        toys / "two", ToyExample, toys / "examples.csv", 0.5, 100, False, **options
    )
    assert len(tf_factory.get_tfrecord_filepaths(toys / "two" / "train")) == 5
    assert not (toys / "two" / "train" / "examples.csv").exists()
    with pytest.raises(TypeError, match="expected example_class or examples_class, got both"):
        tf_factory.generate_dataset([], example_class=ToyExample, examples_class=ToyExample)


class Everything(Example):
    def __init__(self, **values):
        self.values = values


def declare(name: str, dtype: int) -> Any:
    return tfrecordable(dtype=dtype)(lambda self: self.values[name])  # no setter: none is needed


KINDS = {
    "flag": (Example.Field.TYPE_BOOL, True),
    "small": (Example.Field.TYPE_INT32, -7),
    "large": (Example.Field.TYPE_INT64, 2**40),
    "real": (Example.Field.TYPE_FLOAT, 0.1),
    "double": (Example.Field.TYPE_DOUBLE, 1 / 3),
    "text": (Example.Field.TYPE_STRING, "héllo"),
    "numbers": (Example.Field.TYPE_ARRAY_INT32, np.array([1, -2, 3], np.int32)),
    "reals": (Example.Field.TYPE_ARRAY_FLOAT32, np.array([0.5, np.nan], np.float32)),
}
for name, (dtype, _) in KINDS.items():
    setattr(Everything, name, declare(name, dtype))

WHOLE = {name: value for name, (_, value) in KINDS.items()}


def original_record(values: dict[str, Any]) -> Any:
    """What TFRecorder writes: numbers in lists of one, texts and arrays as bytes."""
    features = {}
    for name, value in values.items():
        if isinstance(value, (bool, int)):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
        elif isinstance(value, float):
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
        else:
            data = value.encode() if isinstance(value, str) else value.tobytes()
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
    return tf.train.Example(features=tf.train.Features(feature=features))


def test_records_are_what_the_original_writes() -> None:
    example = Everything(**WHOLE)
    record = example.serialize_to_string()
    assert tf.train.Example.FromString(record) == original_record(WHOLE)
    assert example.get_byte_size() == len(record) == original_record(WHOLE).ByteSize()


def test_every_type_comes_back(tmp_path: Path) -> None:
    tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path, [Everything(**WHOLE)], 1e6, False)
    (found,) = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path))
    assert [part.dtype.name for part in found] == [
        "bool", "int32", "int64", "float32", "float32", "string", "int32", "float32"]  # fmt: skip
    for part, value in zip(found, WHOLE.values(), strict=True):
        wanted = value.encode() if isinstance(value, str) else np.asarray(value, part.dtype.as_numpy_dtype)
        np.testing.assert_array_equal(part.numpy(), wanted)
    assert Everything.get_tfrecordable_attribute_names() == list(KINDS)


def test_files_of_the_original_open(tmp_path: Path) -> None:
    path = str(tmp_path / "0.tfr")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(original_record(WHOLE).SerializeToString())
        writer.write(tf.train.Example().SerializeToString())  # what is missing is 0, False or empty
    whole, empty = tf_factory.generate_dataset([path], Everything)
    np.testing.assert_array_equal(whole[6].numpy(), WHOLE["numbers"])
    assert [np.asarray(part.numpy()).tolist() for part in empty] == [
        False, 0, 0, 0.0, 0.0, b"", [], []]  # fmt: skip
    with pytest.raises(ps.NotFoundError, match=r"expected a schema beside the records, got none.*example_class"):
        tf_factory.generate_dataset([path])


def test_penstock_opens_the_files_as_they_are(toys: Path) -> None:
    toy = tf_factory.generate_and_save_tfrecords_files_for_examples_file
    toy(toys / "saved", ToyExample, toys / "examples.csv", src_data_dirpath=toys / "data", chunk_size_in_bins=12)
    train = ps.load(str(toys / "saved" / "*.tfr"))["train"]
    assert train.schema == ps.Schema(ToyExample.get_tfrecordable_ordered_dict())
    assert len(train) == 10
    assert train[3]["label"] == 3
    np.testing.assert_array_equal(train[3]["data"], np.arange(1, 13, dtype=np.float32) + 3)


class Matrix(Example):
    def __init__(self, *shape):
        self.pixels_of = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
    def pixels(self):
        return self.pixels_of

    def to_csv_row(self):
        return list(self.pixels_of.shape)


def test_shapes_survive(tmp_path: Path) -> None:
    tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path, [Matrix(2, 3), Matrix(4, 1)])
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path))
    assert dataset.element_spec == (tf.TensorSpec([None, None], tf.int32),)
    assert [pixels.tolist() for (pixels,) in tuples(dataset)] == [[[0, 1, 2], [3, 4, 5]], [[0], [1], [2], [3]]]
    (pixels,) = Matrix.parse_from_string(Matrix(2, 3).serialize_to_string())
    assert pixels.shape == (2, 3)
    tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path, [Matrix(2, 3), Matrix(4), Matrix()])
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path))
    assert dataset.element_spec == (tf.TensorSpec(None, tf.int32),)  # of any number of dimensions
    assert [pixels.shape for (pixels,) in tuples(dataset)] == [(2, 3), (4,), (1,)]


@pytest.mark.parametrize(("limit", "sizes"), [(None, [2] * 5), (5e6, [10]), (100, [1] * 10)])
def test_the_size_option_works(tmp_path: Path, limit: float | None, sizes: list[int]) -> None:
    """There it never reached the writer: files were of 1 MB, whatever was asked. Nor is a first, large one empty."""
    options = {} if limit is None else {"examples_tfrecord_file_max_size_in_bytes": limit}
    examples = [Matrix(100_000) for _ in range(10)]  # 400 kB each
    tf_factory.generate_and_save_tfrecords_files_for_examples_dict(tmp_path, {"fold_0": examples}, **options)
    paths = tf_factory.get_tfrecord_filepaths(tmp_path / "fold_0")
    assert [len(ps.TFRecordReader(path)) for path in paths] == sizes
    assert [Path(path).name for path in paths] == [f"{number}.tfr" for number in range(len(sizes))]
    with pytest.raises(ps.SchemaError, match="expected a size of 1 or more, got 0 - at examples_tfrecord_file_max"):
        tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path, examples, 0)


class Strict(ToyExample):
    """Its methods name all that they accept."""

    def load(self, src_data_dirpath=None, normalize=False):
        super().load(src_data_dirpath, normalize)

    def split(self):
        return [self]

    @staticmethod
    def from_csv_row(row):
        return Strict(row[0], int(row[1]))


def test_an_option_that_nothing_accepts_is_an_error(toys: Path) -> None:
    with pytest.raises(ps.SchemaError, match=r"unknown option 'normalise' - at Strict. Did you mean 'normalize'"):
        tf_factory.generate_and_save_train_eval_test_tfrecords_files(
            toys / "saved", Strict, toys / "examples.csv", src_data_dirpath=toys / "data", normalise=True
        )
    assert not (toys / "saved").exists()


class Lenient(Example):
    """The class of the documents without the optional `split`: `load` accepts every option."""

    def __init__(self):
        self._number, self.got = 7, {}

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def number(self):
        return self._number

    @number.setter
    def number(self, value):
        self._number = value

    def load(self, src_data_dirpath=None, **kwargs):
        self.number = kwargs["chunk_size_in_bins"]

    def to_csv_row(self):
        return ["a"]


def test_options_go_to_every_method_that_accepts_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save = tf_factory.generate_and_save_tfrecords_files_for_examples_dict
    given = {"src_data_dirpath": ".", "chunk_size_in_bins": 5}
    assert save(tmp_path / "out", {"train": [Lenient()]}, **given) == {"train": 1}
    assert "no method names the option 'chunk_size_in_bins'" in caplog.text
    assert "src_data_dirpath" not in caplog.text
    paths = tf_factory.get_tfrecord_filepaths(tmp_path / "out" / "train")
    assert [int(number) for (number,) in tf_factory.generate_dataset(paths, Lenient)] == [5]


class Tolerant(Lenient):
    """`load` accepts every option and reads none."""

    def load(self, src_data_dirpath=None, **kwargs):
        pass


def test_an_option_that_no_method_reads_is_accepted_by_kwargs(tmp_path: Path) -> None:
    save = tf_factory.generate_and_save_tfrecords_files_for_examples_dict
    assert save(tmp_path / "out", {"train": [Tolerant()]}, src_data_dirpath=".", chunk_size_in_bins=5) == {"train": 1}


class Breaking(ToyExample):
    """One of its examples cannot be loaded."""

    def load(self, **kwargs):
        if self.name == "n5":
            raise ValueError("no such recording")
        self.data = np.zeros(3, np.float32)

    def split(self, **kwargs):
        return [self]

    @staticmethod
    def from_csv_row(row, **kwargs):
        return Breaking(row[0], int(row[1]))


def test_errors_name_the_line_and_the_row_whatever_the_order(tmp_path: Path) -> None:
    rows = [f"n{number},{number}" for number in range(13)]
    (tmp_path / "examples.csv").write_text("\n".join([rows[0], "", *rows[1:]]) + "\n")
    place = r"examples\.csv, line 7: \['n5', '5'\]"
    for seed in range(3):
        with pytest.raises(ps.ExampleError, match=place) as caught:
            tf_factory.generate_and_save_train_eval_test_tfrecords_files(
                tmp_path / "saved", Breaking, tmp_path / "examples.csv", examples_shuffle_seed=seed
            )
        assert "no such recording" in str(caught.value)
    with pytest.raises(ps.ExampleError, match=place):
        tf_factory.generate_and_save_tfrecords_files_for_examples_file(
            tmp_path / "saved", Breaking, tmp_path / "examples.csv"
        )
    examples = [Breaking(f"n{number}", number) for number in range(13)]
    with pytest.raises(ps.ExampleError, match=r"example 5\b"):  # of the list, not of what is shuffled
        tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples(tmp_path / "saved", examples)


class Spoken(ToyExample):
    """A second class, whose `split` must be given its option."""

    def split(self, chunk_size_in_bins, **kwargs):
        parts = super().split(chunk_size_in_bins)
        return [Spoken(part.name, part.label).having(part.data) for part in parts]

    def having(self, data):
        self.data = data
        return self

    @staticmethod
    def from_csv_row(row, **kwargs):
        return Spoken(row[0], int(row[1]))


@pytest.mark.parametrize("kind", [ToyExample, Spoken])
@pytest.mark.parametrize("more", [{}, {"add_row": True}])
def test_the_checker_of_the_original(toys: Path, kind: Any, more: dict[str, Any]) -> None:
    """What the original's six unit tests do, with options that only some of the methods know."""
    examples = [kind(f"n{number}", number) for number in range(3)]
    options = {"src_data_dirpath": str(toys / "data"), "chunk_size_in_bins": 5, **more}
    check = checker.assert_example_serialize_deserialize_is_ok
    assert check(examples, tfrecords_files_max_size_in_bytes=1e4, **options)
    assert check(kind("n0", 0), **options)
    tf_factory.generate_and_save_tfrecords_files_for_examples(toys / "saved", [kind("n0", 0)], **options)
    dataset = checker.generate_test_dataset(tf_factory.get_tfrecord_filepaths(toys / "saved"), kind)
    with pytest.raises(AssertionError, match=r"expected .*, got .* - at element 0, data"):
        checker.assert_examples_content_matches_dataset_content([kind("n1", 0)], dataset, **options)


def test_a_second_run_from_the_csv_files_of_the_first(toys: Path) -> None:
    """Sets are made, and made again from their examples.csv, with an option more."""
    examples = [ToyExample(f"n{number % 3}", number % 3) for number in range(13)]
    options = {"src_data_dirpath": str(toys / "data"), "chunk_size_in_bins": 5}
    tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples(
        toys / "first", examples, [0.5, 0.3, 0.2], **options
    )
    names = (constants.TRAIN_DIRECTORY_NAME, constants.EVAL_DIRECTORY_NAME, constants.TEST_DIRECTORY_NAME)
    lists = [tf_factory.get_examples_list_filepaths(toys / "first" / name) for name in names]
    counts = tf_factory.generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
        toys / "second", ToyExample, *lists, data_dirpath=str(toys), add_row=True, **options
    )
    assert counts == {"train": 6, "eval": 3, "test": 4}
    for name in names:
        assert (toys / "second" / name / constants.EXAMPLES_LIST_FILENAME).exists()
    tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        toys / "third", ToyExample, toys / "examples.csv", [0.5, 0.3, 0.2], **options
    )
    assert (toys / "third" / constants.EXAMPLES_TFRECORD_FILES_CONFIG_FILENAME).exists()


class Plain(Matrix):
    """Its methods have no **kwargs: there, the factory's own options made them fail."""

    def __init__(self, name):
        super().__init__(3)
        self.name = name

    def load(self, factor):
        self.pixels_of = self.pixels_of * np.int32(factor)

    @classmethod
    def from_csv_row(cls, row):
        return cls(row[0])

    def to_csv_row(self):
        return [self.name]


class Reading(Plain):
    """It reads its **kwargs, so that nobody else can tell which options it knows."""

    def load(self, **kwargs):
        super().load(kwargs["times"])


@pytest.mark.parametrize(("kind", "option"), [(Plain, "factor"), (Reading, "times")])
def test_methods_get_the_options_that_they_take(tmp_path: Path, kind: type[Plain], option: str) -> None:
    (tmp_path / "list.csv").write_text("a\n\nb\n")
    save = tf_factory.generate_and_save_tfrecords_files_for_examples_file
    assert save(tmp_path / "saved", kind, tmp_path / "list.csv", **{option: 5}) == 2
    found = tuples(tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path / "saved")))
    assert [data.tolist() for (data,) in found] == [[0, 5, 10]] * 2


def test_a_child_keeps_its_fields_to_itself() -> None:
    class Child(ToyExample):
        @tfrecordable(dtype=Example.Field.TYPE_STRING)
        def note(self):
            return "a note"

    assert ToyExample.get_tfrecordable_attribute_names() == ["label", "data"]
    assert Child.get_tfrecordable_attribute_names() == ["label", "data", "note"]
    assert Child.get_tfrecordable_ordered_dict()["label"] == Example.Field.TYPE_INT32


class Picky(Matrix):
    def __init__(self, name):
        super().__init__(2)
        self.name = name

    def load(self):
        if self.name == "unloaded":
            raise IgnoreExampleException("no file")

    def split(self):
        if self.name == "unsplit":
            raise IgnoreExampleException("too short")
        return [self, self]

    def to_csv_row(self):
        return [self.name]


def test_examples_that_wish_to_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There, one that `split` left out was logged all the same, and both were counted."""
    examples = [Picky(name) for name in ("a", "unloaded", "unsplit", "b")]
    counts = tf_factory.generate_and_save_tfrecords_files_for_examples_dict(tmp_path, {"train": examples})
    assert counts == {"train": 2}
    assert (tmp_path / "train" / "examples.csv").read_bytes() == b"a\r\nb\r\n"
    assert len(ps.TFRecordReader(tmp_path / "train" / "0.tfr")) == 4
    assert [record.message for record in caplog.records] == [f"2 examples asked to be left out of {tmp_path / 'train'}"]


def test_a_second_run_replaces_the_first(toys: Path) -> None:
    """There, files of the first run stayed, the log grew, and the same objects were written as they were before."""
    examples = ToyExample.from_csv_file(toys / "examples.csv")
    (toys / "saved").mkdir()
    (toys / "saved" / "notes.tfr").write_bytes(b"not ours")
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    save(toys / "saved", examples, 100, src_data_dirpath=toys / "data", chunk_size_in_bins=12)
    save(toys / "saved", examples[:4], 200, src_data_dirpath=toys / "data", normalize=True, chunk_size_in_bins=12)
    paths = tf_factory.get_tfrecord_filepaths(toys / "saved")
    assert [Path(path).name for path in paths] == ["0.tfr", "1.tfr"]
    assert all(data.max() == 1 for _, data in tuples(tf_factory.generate_dataset(paths)))
    assert (toys / "saved" / "examples.csv").read_bytes() == b"n0,0\r\nn1,1\r\nn2,2\r\nn3,3\r\n"
    assert (toys / "saved" / "notes.tfr").exists()
    assert [(example.label, example.data) for example in examples[:2]] == [(0, None), (1, None)]  # light, as they were


def test_a_run_that_fails_leaves_what_was_there(toys: Path) -> None:
    examples = ToyExample.from_csv_file(toys / "examples.csv")
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    save(toys / "saved", examples, 100, src_data_dirpath=toys / "data")
    before = {path.name: path.read_bytes() for path in (toys / "saved").iterdir()}
    (toys / "data" / "n7.npy").unlink()
    with pytest.raises(ps.ExampleError, match=r"FileNotFoundError: .*n7.npy' - in example '7' of saved"):
        save(toys / "saved", examples, 200, src_data_dirpath=toys / "data")
    assert {path.name: path.read_bytes() for path in (toys / "saved").iterdir()} == before


def test_the_shuffle_has_a_seed_and_leaves_the_list_alone(toys: Path) -> None:
    examples = ToyExample.from_csv_file(toys / "examples.csv")
    save = tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples
    logs = []
    for number, options in enumerate([{}, {}, {"examples_shuffle_seed": 1}, {"examples_shuffle": False}]):
        folder = toys / str(number)
        save(folder, examples, [0.6, 0.3, 0.1], src_data_dirpath=toys / "data", **options)
        logs.append((folder / "train" / "examples.csv").read_text().split())
    assert logs[0] == logs[1] != logs[2]
    assert logs[3] == [f"n{number},{number}" for number in range(6)]
    assert [example.name for example in examples] == [f"n{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("count", "ratio", "sizes"),
    [
        (10, 0.8, (8, 2, 0)),
        (13, [0.7, 0.3], (9, 4, 0)),
        (13, [0.5, 0.3, 0.2], (6, 3, 4)),
        (1, 0.8, (0, 1, 0)),
        (3, [0.5, 0.5, 0.0], (1, 1, 1)),
        (10, (0.6, 0.3, 0.1), (6, 3, 1)),  # there, these did not sum to 1, and a tuple was a TypeError
        (10, [0.7, 0.2, 0.1], (7, 2, 1)),
    ],
)
def test_ratios(count: int, ratio: Any, sizes: tuple[int, ...]) -> None:
    parts = tf_factory.split_examples_list(list(range(count)), ratio)  # type: ignore[arg-type]
    assert tuple(len(part or []) for part in parts) == sizes
    assert [number for part in parts for number in part or []] == list(range(count))


@pytest.mark.parametrize("ratio", [2.0, -0.1, [0.5, 0.6], [0.25] * 4, [], "0.8", None, float("nan"), ["a", "b"]])
def test_ratios_that_make_no_sense(ratio: Any) -> None:
    with pytest.raises(ps.SchemaError, match="one ratio up to 1, or two or three that sum to 1"):
        tf_factory.split_examples_list([], ratio)


def test_the_config_file(toys: Path) -> None:
    tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        toys / "saved" / "deep", ToyExample, toys / "examples.csv", [0.5, 0.3, 0.2],
        src_data_dirpath=toys / "data", normalize=True, examples_shuffle=False,
    )  # fmt: skip
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(toys / "saved" / "deep" / "tfrecord_files_config.txt")
    assert list(parser["examples"].items()) == [
        ("src_data_dirpath", str(toys / "data")),
        ("normalize", "True"),
        ("shuffle", "False"),
        ("class_name", "ToyExample"),
        ("list_filepath", str(toys / "examples.csv")),
        ("train_eval_test_ratio", "[0.5, 0.3, 0.2]"),
        ("tfrecord_file_max_size_in_mb", "1.00e+00"),
        ("log_in_csv_file", "True"),
        ("train_count", "5"),
        ("eval_count", "3"),
        ("test_count", "2"),
    ]


def test_separate_csv_files(toys: Path) -> None:
    for name, rows in {"train": "n0,0\nn1,1\n", "eval": "n2,2\n", "test": "n3,3\n"}.items():
        (toys / f"{name}.csv").write_text(rows)
    save = tf_factory.generate_and_save_tfrecords_files_for_train_eval_test_examples_files
    options = {"src_data_dirpath": toys / "data", "chunk_size_in_bins": 12}
    assert save(toys / "two", ToyExample, toys / "train.csv", toys / "eval.csv", **options) == {"train": 2, "eval": 1}
    counts = save(toys / "three", ToyExample, toys / "train.csv", toys / "eval.csv", toys / "test.csv", **options)
    assert counts == {"train": 2, "eval": 1, "test": 1}
    (found,) = tuples(tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(toys / "three" / "test")))
    assert found[0] == 3
    assert tf_factory.get_examples_list_filepaths(toys / "three" / "test") == str(
        toys / "three" / "test" / "examples.csv"
    )
    with pytest.raises(ValueError, match="expected a folder, got none"):
        tf_factory.get_tfrecord_filepaths(toys / "nowhere")


def test_an_empty_list_is_an_empty_dataset(tmp_path: Path) -> None:
    assert tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path / "saved", []) == 0
    paths = tf_factory.get_tfrecord_filepaths(tmp_path / "saved")
    assert [Path(path).name for path in paths] == ["0.tfr"]
    assert tuples(tf_factory.generate_dataset(paths, ToyExample)) == []
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="expected a path, or a list of paths, got an empty list"):
        tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path / "other"), ToyExample)


@pytest.mark.alone
def test_shuffled_datasets(toys: Path) -> None:
    """Files are shuffled, as the option's name says, and records, as it did."""
    save = tf_factory.generate_and_save_tfrecords_files_for_examples_file
    save(toys / "saved", ToyExample, toys / "examples.csv", 70, src_data_dirpath=toys / "data", chunk_size_in_bins=12)
    paths = tf_factory.get_tfrecord_filepaths(toys / "saved")
    assert len(paths) == 10

    def labels(**options: Any) -> list[int]:
        return [int(label) for label, _ in tuples(tf_factory.generate_dataset(paths, ToyExample, **options))]

    assert labels(dataset_fetching_num_threads=2) == list(range(10))
    seeded = labels(dataset_num_shuffled_tfrecord_files=2, dataset_shuffle_seed=7)
    assert sorted(seeded) == list(range(10)) != seeded
    assert seeded == labels(dataset_num_shuffled_tfrecord_files=2, dataset_shuffle_seed=7)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("small", 2**40, "int32"),  # there it became 0
        ("small", None, r"expected a value, got None - at Everything.small. Set it in load\(\)"),
        ("small", 0.5, "int32"),
        ("text", np.zeros(2, np.float32), "str"),  # there it was written raw
        ("text", 5, "str"),
        ("numbers", np.zeros(2, np.float32), r"expected int32\[\?\]\?, got float32\[2\] - at Everything.numbers. Cast"),
        ("reals", np.zeros(2), r"got float64\[2\] - at Everything.reals. Cast it first: value.astype\("),
        ("reals", "text", r"got str - at Everything.reals"),
        ("reals", None, r"expected a value, got None - at Everything.reals. Set it in load\(\)"),
    ],
)
def test_values_that_do_not_fit(name: str, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Everything(**{**WHOLE, name: value}).serialize_to_string()


def test_a_list_is_an_array() -> None:
    """There, it was a TypeError."""
    record = Everything(**{**WHOLE, "reals": [0.5, 1.5]}).serialize_to_string()
    assert Everything.parse_from_string(record)[-1].numpy().tolist() == [0.5, 1.5]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    class Bare(Example):
        pass

    class Unlisted(Example):
        label = tfrecordable(dtype=Example.Field.TYPE_INT32)(lambda self: 3)

    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    with pytest.raises(ps.SchemaError, match="expected something to store, got nothing - at Bare"):
        save(tmp_path, [Bare()])
    with pytest.raises(ps.ExampleError, match=r"Unlisted has no to_csv_row.* - in example '0'"):
        save(tmp_path, [Unlisted()])
    assert save(tmp_path, [Unlisted()], examples_log_in_csv_file=False) == 1
    with pytest.raises(NotImplementedError, match="Unlisted has no from_csv_row"):
        Unlisted.from_csv_file(__file__)
    with pytest.raises(TypeError, match=r"expected one of Example.Field.TYPE_..., got 'int32'"):
        tfrecordable(dtype="int32")  # type: ignore[arg-type]


ALONE = """
import os, signal, sys
import numpy as np
from penstock.compat.tfrecorder import Example, factory, tfrecordable

class Numbers(Example):
    def __init__(self, number):
        self.number = number

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self):
        return self.values

    def load(self, times):
        if times == 0 and self.number == 30:
            os.kill(parent, signal.SIGKILL)
        self.values = np.full((2, 2), self.number * times, np.float32)
        self.process = os.getpid()

    def to_csv_row(self):
        return [self.number, self.process]

parent = os.getpid()
factory.generate_and_save_tfrecords_files_for_examples(
    sys.argv[1], [Numbers(n) for n in range(40)], 300, times=int(sys.argv[2])
)
assert "tensorflow" not in sys.modules, "imported"
"""


def test_examples_are_loaded_on_all_cores_without_tensorflow(tmp_path: Path) -> None:
    """Killed half way, a second run leaves what the first has written; rows are taken from what was loaded."""
    run = [sys.executable, "-c", ALONE, str(tmp_path / "saved")]
    subprocess.run([*run, "2"], check=True)
    rows = list(csv.reader((tmp_path / "saved" / "examples.csv").open(newline="")))
    assert [int(number) for number, _ in rows] == list(range(40))
    assert len({process for _, process in rows}) > 1 or os.cpu_count() == 1
    before = {path.name: path.read_bytes() for path in (tmp_path / "saved").glob("*.tfr")}
    assert len(before) > 5
    assert subprocess.run([*run, "0"]).returncode == -9
    assert {path.name: path.read_bytes() for path in (tmp_path / "saved").glob("*.tfr")} == before
    subprocess.run([*run, "3"], check=True)
    found = tuples(tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path / "saved")))
    assert [data.tolist() for (data,) in found] == [[[3.0 * n] * 2] * 2 for n in range(40)]
    assert not [path for path in (tmp_path / "saved").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("said", ["[]", '{"penstock_schema": 1, "fields": {"x": {"type": "int99"}}}', "{"])
def test_fields_that_make_no_sense(tmp_path: Path, said: str) -> None:
    tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path, [Everything(**WHOLE)], 1e6, False)
    (tmp_path / "N.tfr.schema.json").write_text(said)
    with pytest.raises(ps.CorruptionError, match=r"N.tfr.schema.json"):
        tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path))


class Killed(Matrix):
    def load(self):
        os.kill(os.getpid(), signal.SIGKILL)  # as the system does where memory is short


def test_a_build_that_breaks_is_no_empty_folder(tmp_path: Path) -> None:
    """Once, whatever kept all examples from being loaded counted as their wish to be left out."""
    tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path, [Matrix(3)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ps.BuildError, match="got a worker process that ended by SIGKILL"):
        tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path, [Killed(n) for n in range(40)])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_part_whose_examples_all_wish_to_be_left_out_is_empty(tmp_path: Path) -> None:
    parts = {"train": [Picky("a"), Picky("b")], "eval": [Picky("unloaded"), Picky("unsplit")], "test": []}
    counts = tf_factory.generate_and_save_tfrecords_files_for_examples_dict(tmp_path, parts)
    assert counts == {"train": 2, "eval": 0, "test": 0}
    paths = [path for name in parts for path in tf_factory.get_tfrecord_filepaths(tmp_path / name)]
    assert [Path(path).stat().st_size > 0 for path in paths] == [True, False, False]
    assert not (tmp_path / "eval" / "examples.csv").exists()
    assert len(tuples(tf_factory.generate_dataset(paths))) == 4  # without the class, though some are empty


def test_all_parts_are_replaced_or_none(toys: Path) -> None:
    """There, and here once, a new train could stand beside an old eval that had some of its examples."""
    examples = ToyExample.from_csv_file(toys / "examples.csv")
    save = tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples
    save(toys / "saved", examples, [0.5, 0.3, 0.2], src_data_dirpath=toys / "data")
    before = {path: path.read_bytes() for path in (toys / "saved").rglob("*.*")}
    last = (toys / "saved" / "test" / "examples.csv").read_text().splitlines()[0].split(",")[0]
    (toys / "data" / f"{last}.npy").unlink()
    with pytest.raises(ps.ExampleError, match=rf"{last}.npy' - in example '0' of test"):
        save(toys / "saved", examples, [0.5, 0.3, 0.2], src_data_dirpath=toys / "data", normalize=True)
    assert {path: path.read_bytes() for path in (toys / "saved").rglob("*.*")} == before
    with pytest.raises(ps.SchemaError, match=r"expected no folder for test, .* take it away first"):
        save(toys / "saved", examples, 0.8, src_data_dirpath=toys / "data")


class Relabelled(ToyExample):
    """Its fields in another order, and one more."""

    data = tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)(lambda self: self._data)
    note = tfrecordable(dtype=Example.Field.TYPE_STRING)(lambda self: "a note")


def test_the_class_says_what_is_read(toys: Path) -> None:
    save = tf_factory.generate_and_save_tfrecords_files_for_examples_file
    save(toys / "saved", ToyExample, toys / "examples.csv", src_data_dirpath=toys / "data", chunk_size_in_bins=12)
    (path,) = tf_factory.get_tfrecord_filepaths(toys / "saved")

    class Label(Example):
        label = tfrecordable(dtype=Example.Field.TYPE_INT64)(lambda self: 0)

    assert [label for (label,) in tuples(tf_factory.generate_dataset(path, Label))] == list(range(10))
    assert tf_factory.generate_dataset(path, Relabelled).element_spec[2] == tf.TensorSpec([], tf.string)
    assert tuples(tf_factory.generate_dataset(path, Relabelled))[0][2] == b""


def test_folds_of_several_shapes_are_read_together(tmp_path: Path) -> None:
    folds = {"fold_0": [Matrix(2, 3)], "fold_1": [Matrix(4)]}
    tf_factory.generate_and_save_tfrecords_files_for_examples_dict(tmp_path, folds)
    paths = [path for name in folds for path in tf_factory.get_tfrecord_filepaths(tmp_path / name)]
    for kind in (None, Matrix):
        assert [pixels.shape for (pixels,) in tuples(tf_factory.generate_dataset(paths, kind))] == [(2, 3), (4,)]


def test_examples_of_several_classes(toys: Path) -> None:
    """Each with the options that it takes; what one does not have is empty."""

    class Scaled(ToyExample):
        scale = tfrecordable(dtype=Example.Field.TYPE_INT32)(lambda self: self.by)

        def load(self, by, src_data_dirpath):
            self.by = by
            super().load(src_data_dirpath)

        def split(self):
            return [self]

    examples = [ToyExample("n0", 0), Scaled("n1", 1)]
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    assert save(toys / "saved", iter(examples), src_data_dirpath=toys / "data", by=7, chunk_size_in_bins=12) == 2
    found = tuples(tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(toys / "saved")))
    assert [(label, scale) for label, _, scale in found] == [(0, 0), (1, 7)]


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("small", np.argmax([1, 3]), 1),
        ("large", np.uint8(3), 3),
        ("real", np.mean([1, 2]), 1.5),
        ("double", np.float64(0.5), 0.5),
        ("flag", 1, True),
        ("flag", np.bool_(True), True),
        ("numbers", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ("reals", [[1, 2.5]], [[1, 2.5]]),
        ("reals", (1, 2), [1, 2]),
    ],
)
def test_numbers_as_numpy_and_lists_have_them(name: str, value: Any, wanted: Any) -> None:
    record = Everything(**{**WHOLE, name: value}).serialize_to_string()
    assert Everything.parse_from_string(record)[list(KINDS).index(name)].numpy().tolist() == wanted


def test_files_are_listed_as_they_are(tmp_path: Path) -> None:
    assert tf_factory.get_tfrecord_filepaths(tmp_path) == []
    for name in ("10.tfr", "2.tfr"):  # 0 and 1 were taken away
        (tmp_path / name).touch()
    assert [Path(path).name for path in tf_factory.get_tfrecord_filepaths(tmp_path)] == ["2.tfr", "10.tfr"]


def test_mistakes_are_told_in_words(toys: Path) -> None:
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    for size in ("1MB", None, float("inf"), float("nan")):
        with pytest.raises(ps.SchemaError, match="expected a size of 1 or more"):
            save(toys / "saved", [], size)
    for examples in ([None], [{}]):
        with pytest.raises(ps.SchemaError, match="expected examples of a class of Example, got"):
            save(toys / "saved", examples)
    with pytest.raises(ps.SchemaError, match=r"expected a class of examples, got 'list.csv'"):
        tf_factory.generate_and_save_tfrecords_files_for_examples_file(toys, "list.csv", ToyExample)
    with pytest.raises(ps.SchemaError, match=r"unknown option 'exmples_shuffle'.*Did you mean 'examples_shuffle'"):
        save(toys / "saved", Strict.from_csv_file(toys / "examples.csv"), exmples_shuffle=True)
    (toys / "titled.csv").write_text("name,label\nn0,0\n")
    with pytest.raises(ValueError, match=r"invalid literal for int.* - at .*titled.csv, line 1"):
        ToyExample.from_csv_file(toys / "titled.csv")
    assert not (toys / "saved").exists()


class Free(Example):
    """A class with names that mean something to a build, and nothing to TFRecorder."""

    def __init__(self, number: Any, array: Any = ()) -> None:
        self._schema, self._stored = number, array  # as fields stand behind their properties
        self.key = "the same for all"

    @tfrecordable(dtype=Example.Field.TYPE_FLOAT)
    def schema(self) -> Any:
        return self._schema

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def stored(self) -> Any:
        return self._stored

    def to_dict(self) -> dict[str, Any]:
        return {"schema": 99}

    def to_csv_row(self) -> list[Any]:
        return [self._schema]


def test_names_of_ones_own_are_ones_own(tmp_path: Path) -> None:
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    assert save(tmp_path / "saved", [Free(1), Free(2)]) == 2
    found = tuples(tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path / "saved"), Free))
    assert [number for number, _ in found] == [1, 2]
    assert float(Free.parse_from_string(Free(3).serialize_to_string())[0]) == 3


def test_numbers_of_numpy_in_lists_and_files_and_large_ones(tmp_path: Path) -> None:
    examples = [
        Free(1794931210, [np.float64(0.5), np.float64(1.5)]),  # no float32 is that number
        Free(np.array(7, np.int64), [[np.float64(0.5)], [np.float64(1.5)]]),
    ]
    tf_factory.generate_and_save_tfrecords_files_for_examples(tmp_path / "saved", examples)
    found = tuples(tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(tmp_path / "saved")))
    assert [number for number, _ in found] == [np.float32(1794931210), 7]
    assert [data.shape for _, data in found] == [(2,), (2, 1)]


def test_files_of_several_runs_are_read_by_the_class(tmp_path: Path) -> None:
    """Whose arrays have other dimensions; and whose class has more fields now."""
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    save(tmp_path / "one", [Free(1, np.zeros((2, 3), np.float32))])
    save(tmp_path / "two", [Free(2, np.ones(4, np.float32))])
    paths = [path for run in ("one", "two") for path in tf_factory.get_tfrecord_filepaths(tmp_path / run)]
    found = tuples(tf_factory.generate_dataset(paths, Free))
    assert [(number, data.shape) for number, data in found] == [(1, (2, 3)), (2, (4,))]
    with pytest.raises(ValueError, match="expected files of one schema"):
        tf_factory.generate_dataset(paths)


def test_a_parser_of_ones_own_is_used(toys: Path) -> None:
    """There it was how arrays got their shapes."""

    class Shaped(ToyExample):
        @classmethod
        def parse_from_string(cls, serialized_examples: Any) -> Any:
            label, data = super().parse_from_string(serialized_examples)
            return tf.reshape(data, (3, 4)), tf.one_hot(label, 10)

    examples = [ToyExample("n1", 1), ToyExample("n2", 2)]
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    save(toys / "saved", examples, src_data_dirpath=toys / "data", chunk_size_in_bins=12)
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(toys / "saved"), Shaped)
    assert dataset.element_spec == (tf.TensorSpec([3, 4], tf.float32), tf.TensorSpec([10], tf.float32))
    assert [int(np.argmax(label)) for _, label in tuples(dataset)] == [1, 2]


def test_arguments_that_are_given_twice_or_are_too_many(tmp_path: Path) -> None:
    save = tf_factory.generate_and_save_tfrecords_files_for_examples
    for values, options in (
        ((1e6, True, "junk"), {}),
        ((1e6,), {"examples_tfrecord_file_max_size_in_bytes": 100}),
    ):
        with pytest.raises(TypeError, match="expected each argument once, got more"):
            save(tmp_path / "saved", [Free(1)], *values, **options)
    assert not (tmp_path / "saved").exists()


def test_ratios_and_lists_of_numpy(tmp_path: Path) -> None:
    numbers = np.arange(10)
    train, evaluation, test = tf_factory.split_examples_list(numbers, np.array([0.5, 0.3, 0.2]))
    assert [len(part) for part in (train, evaluation, test)] == [5, 3, 2]
    train, evaluation, test = tf_factory.split_examples_list(numbers, np.float32(0.8))
    assert (len(train), len(evaluation), test) == (8, 2, None)


def test_a_test_folder_of_an_earlier_run_is_no_part_of_one_without(toys: Path) -> None:
    save = tf_factory.generate_and_save_tfrecords_files_for_train_eval_test_examples_files
    files, options = [toys / "examples.csv"] * 3, {"src_data_dirpath": toys / "data"}
    save(toys / "saved", ToyExample, *files, **options)
    with pytest.raises(ValueError, match="expected no folder for test"):
        save(toys / "saved", ToyExample, *files[:2], **options)
