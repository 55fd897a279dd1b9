"""TAR2TF, the client that AIStore once had: tars of images in a bucket as a tf.data.Dataset, or as a TFRecord file.

    from penstock.compat.tar2tf import AisDataset, default_record_parser

    ais = AisDataset(BUCKET_NAME, PROXY_URL)
    train = ais.load_from_tar("train-{0..3}.tar.gz").shuffle().batch(BATCH_SIZE)

A folder, or any URL that penstock reads, may stand in the place of the proxy: AisDataset("imagenet", "s3://bucket").
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np

from ..ais import at
from ..building.api import build
from ..dataset.plain_files import schema_path
from ..errors import SchemaError
from ..loading.dataset import load
from ..loading.loader import Loader
from ..loading.spec import HELD, WHOLE
from ..records.index import sidecar_path
from ..schema.coercion import map_nested
from ..schema.columns import ExampleDict, Value
from ..schema.example_class import IgnoreExample
from ..schema.field import Image
from ..sources.tar import tar
from ..storage.cache import default_folder
from ..storage.files import checked_path
from ..storage.open import open_store
from ..storage.store import is_url, url_name

SIZE = (224, 224)

Record = Mapping[str, Any]


class AisDataset:
    """The tars of a bucket.

    bucket     its name; a folder, where the tars are below one
    proxy_url  the address of AIStore's proxy; or a folder or URL that has `bucket` in it
    """

    def __init__(self, bucket: str, proxy_url: str | os.PathLike[str] = "localhost:8080") -> None:
        proxy = os.fspath(proxy_url).rstrip("/")
        if os.path.isdir(proxy) or (is_url(proxy) and not proxy.startswith("http")):
            self.root = f"{proxy}/{bucket}".rstrip("/")
        else:
            self.root = at(f"ais://{bucket}", proxy if "://" in proxy else f"http://{proxy}")

    def load_from_tar(
        self,
        template: str,
        path: str | os.PathLike[str] | None = None,
        record_to_example: Callable[[ExampleDict], Value] | None = None,
        record_to_pair: Callable[[ExampleDict], Value] | None = None,
        output_types: object = None,
        output_shapes: object = None,
    ) -> Any:
        """The samples of the tars that a template names: a dataset of pairs or, with `path`, a TFRecord file.

        template           "train-{0..7}.tar.gz"; in the order of its numbers, all of which have to be there
        path               the file to write; its name is what comes back then, in a list
        record_to_example  from {"__key__": ..., extension: bytes} to a dict or a tf.train.Example, for the file
        record_to_pair     from the same to (value, label), for the dataset
        output_types       what these are, where the first pair does not show it; so `output_shapes`
        """
        tars = f"{self.root}/{template}"
        if not path:
            if record_to_example is not None:
                hint = "Give record_to_pair, or the path of the file"
                raise SchemaError("expected record_to_example for a file to write, got no path", tars, hint)
            memory = _Memory() if is_url(tars) and not _is_writable(default_folder()) else None
            loaded = load(tars, decode=False, cache=None if memory is None else memory.name)
            translation = _Translation(record_to_pair, output_types, output_shapes)
            return _pairs(loaded["+".join(loaded)], translation, memory)
        if os.path.isdir(path):
            raise SchemaError("expected the name of a file to write, got a folder", str(path))
        function = record_to_example or default_record_to_example
        source = tar(tars, record_to_example=lambda record: _plain(function(record)))
        text = checked_path(path, "path")
        if is_url(text):
            with TemporaryDirectory() as folder:
                self._write(source, Path(folder, url_name(text)))
                store, name = open_store(text)
                store.send(Path(folder, url_name(text)), name)
        else:
            self._write(source, Path(text))
        return [os.fspath(path)]

    def _write(self, source: object, path: Path) -> None:
        """Write one TFRecord file, without its index and schema."""
        fresh = path.with_name(f".{path.name}.tfrecord")
        build(source, fresh, order="source", overwrite=True)
        for beside in (sidecar_path(fresh), schema_path(fresh)):
            beside.unlink()
        os.replace(fresh, path)


@dataclass(frozen=True)
class _Translation:
    """What makes a pair of a sample, and what its parts are."""

    function: Any
    types: Any
    shapes: Any

    def dataset(self, loader: Loader) -> Any:
        """A tf.data.Dataset of single pairs."""
        tf = tensorflow()
        if self.function is None:
            records = loader
            if any(leaf.optional for leaf in records.schema.leaves() if leaf.name in ("jpg", "cls")):
                records = loader.select("__key__", "jpg", "cls").filter(_is_complete)
            records = records.select("jpg", "cls").to_tf()
            return records.map(default_record_to_pair, num_parallel_calls=tf.data.AUTOTUNE)
        function = self.function
        first = [_number(part) for part in _pair(function, next(iter(Loader(loader.spec))))]
        types = self.types or [tf.convert_to_tensor(part).dtype for part in first]
        shapes = self.shapes or [np.shape(part) for part in first]
        spec = tuple(map(tf.TensorSpec, shapes, types))

        def pair(record: ExampleDict) -> tuple[Any, ...]:
            parts = zip(_pair(function, record), spec, strict=True)
            return tuple(
                part if each.dtype == tf.string else tf.cast(_number(part), each.dtype) for part, each in parts
            )

        return loader.map(pair).to_tf(element_spec=spec)


def _pairs(loader: Loader, translation: _Translation, memory: _Memory | None) -> Any:
    """A tf.data.Dataset of pairs whose `shuffle` needs no size."""
    return _pairs_class()(translation.dataset(loader), loader, translation, memory)


@cache
def _pairs_class() -> type:
    """The class of that dataset: it is defined once TensorFlow is needed."""
    tf = tensorflow()

    class Pairs(tf.data.Dataset):  # type: ignore[misc,name-defined]
        """Pairs of a value and its label: a tf.data.Dataset whose `shuffle` is of all samples."""

        def __init__(self, dataset: Any, loader: Loader, translation: _Translation, memory: _Memory | None) -> None:
            self._dataset, self._loader, self._translation, self._memory = dataset, loader, translation, memory
            super().__init__(dataset._variant_tensor)

        def _inputs(self) -> list[Any]:
            return [self._dataset]

        @property
        def element_spec(self) -> Any:
            """What the pairs are."""
            return self._dataset.element_spec

        def shuffle(
            self, buffer_size: Any = None, seed: Any = None, reshuffle_each_iteration: Any = None, name: Any = None
        ) -> Any:
            """All pairs in another order each epoch, without a buffer; in one order by a buffer of TensorFlow.

            Compressed tars that memory does not hold all at once are shuffled within windows, several tars at a time.
            """
            if reshuffle_each_iteration is False:
                return super().shuffle(buffer_size or len(self._loader), seed, False, name)
            seed = int.from_bytes(os.urandom(4), "little") if seed is None else int(seed) % (1 << 63)
            window = self._loader.spec.widest_window
            lanes = None if window is None else _lanes(self._loader)
            shuffled = self._loader.shuffle(seed=seed, window=window, lanes=lanes)
            return _pairs(shuffled, self._translation, self._memory)

        def batch(self, batch_size: object, drop_remainder: object = False, **options: Any) -> Any:
            """Batches, one of which is made while another one is used."""
            return super().batch(batch_size, drop_remainder, **options).prefetch(tf.data.AUTOTUNE)

    return Pairs


def _lanes(loader: Loader) -> int:
    """How many compressed tars are read at a time: as many as memory holds once they are inflated."""
    files = loader.spec.files.inflated
    largest = max(min(file.inflated, WHOLE) for file in files)
    return max(1, min(len(files), HELD // largest))


class _Memory(TemporaryDirectory[str]):
    """A folder for tars of a store where there is no folder for a cache: in memory, if the system has such a one."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        super().__init__(prefix="penstock-", dir=shared if _is_writable(shared) else None)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def default_record_to_example(record: Record) -> ExampleDict:
    """The features of a sample with a jpg and a cls: height, width, depth, label, image_raw."""
    if "jpg" not in record and "cls" not in record:
        raise IgnoreExample
    sizes = zip(("height", "width", "depth"), Image(channels=None).decode(record["jpg"]).shape, strict=True)
    return {**dict(sizes), "label": int(record["cls"]), "image_raw": record["jpg"]}


def default_record_to_pair(record: Record) -> tuple[Any, Any]:
    """The image as float32[224,224,3] within 0..1, and its label."""
    tf = tensorflow()
    image = tf.image.convert_image_dtype(tf.io.decode_jpeg(record["jpg"], channels=3), tf.float32)
    return tf.image.resize(image, SIZE), tf.strings.to_number(tf.strings.strip(record["cls"]), tf.int32)


def default_record_parser(record: object) -> tuple[Any, Any]:
    """A record of the file as a pair: the image as float32[224,224,3] within 0..255, and its label."""
    tf = tensorflow()
    features = {name: tf.io.FixedLenFeature([], tf.int64) for name in ("height", "width", "depth", "label")}
    example = tf.io.parse_single_example(record, {**features, "image_raw": tf.io.FixedLenFeature([], tf.string)})
    image = tf.cast(tf.io.decode_jpeg(example["image_raw"], channels=3), tf.float32)
    return tf.ensure_shape(tf.image.resize(image, SIZE), (*SIZE, 3)), tf.cast(example["label"], tf.int32)


def _is_complete(record: Record) -> bool:
    """Whether a sample has an image and a label; one that has neither is none of ours."""
    missing = [name for name in ("jpg", "cls") if record[name] is None]
    if len(missing) == 1:
        raise SchemaError(f"expected a sample with jpg and cls, got no {missing[0]}", record["__key__"])
    return not missing


def _plain(value: Any) -> Any:
    """Floats, in a dict too, as those that tf.Example has: of 4 bytes. Anything else as it is."""
    if isinstance(value, Mapping):
        return {name: map_nested(_plain, each, list) for name, each in value.items()}
    return np.float32(value) if isinstance(value, float) or getattr(value, "dtype", None) == np.float64 else value


def _pair(function: Callable[[ExampleDict], Value], record: ExampleDict) -> tuple[Any, Any]:
    pair = function({name: value for name, value in record.items() if value is not None})
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise SchemaError(f"expected (value, label), got {type(pair).__name__}", "record_to_pair")
    return pair[0], pair[1]


def _number(part: object) -> Any:
    """The number that the bytes of a label spell, as TAR2TF read them."""
    return np.int32(int(part)) if isinstance(part, bytes) and part.strip().isdigit() else part


def tensorflow() -> Any:
    """TensorFlow, when it is needed."""
    from ..frameworks.tensorflow import tf

    return tf
