"""Sources over rows: examples in memory, a function of each example, and rows with files loaded into them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from .._core import ImageFiles
from ..dataset.record_files import split_order
from ..errors import NotFoundError, SchemaError, name_known
from ..schema.columns import Array, Bytes, Columns, ExampleDict, Value
from ..schema.field import Field
from ..schema.schema import Schema
from ..storage.files import list_folder, parent_path, read_file, read_files
from ..storage.paths import entries, has_suffix
from ..storage.store import is_url
from .files import IMAGE_SUFFIXES, NO_STAMPS, largest_of, stamp_of, stamps_of_files, within
from .fingerprint import described
from .images import check_image
from .protocol import BatchSource, Source, TableSource, position

MOST_FOLDERS = 64  # of images that are listed one by one; where there are more, all that lies below the root is
Load = Callable[[ExampleDict], Mapping[str, Value]]


class Examples(Source):
    """Examples that are in memory as a whole, each with its key and the file that it comes from.

    known  stamps of files in a store, by URL
    """

    def __init__(
        self,
        examples: list[ExampleDict],
        keys: list[str],
        places: list[str],
        schema: Schema | None = None,
        known: Mapping[str, str] = NO_STAMPS,
    ) -> None:
        self.examples = examples
        self.keys = keys
        self.places = places
        self.schema = schema
        self._known = known

    def __len__(self) -> int:
        return len(self.examples)

    def __repr__(self) -> str:
        return f"Examples({len(self)} of {', '.join(self.examples[0]) if self.examples else 'nothing'})"

    def __getitem__(self, index: int) -> ExampleDict:
        return self.examples[position(index, len(self))]

    def column(self, name: str) -> list[Value] | None:
        """The values of one field."""
        return [example.get(name) for example in self.examples] if any(name in e for e in self.examples[:1]) else None

    def key(self, index: int) -> str:
        """What names the example."""
        return self.keys[position(index, len(self))]

    def place(self, index: int) -> str:
        """The file, and where in it."""
        return self.places[position(index, len(self))]

    def stamp(self, index: int) -> str:
        """That of the file."""
        place = self.place(index)
        return stamp_of(place.rpartition("[" if place.endswith("]") else ":")[0], self._known)


class Mapped(Source):
    """A listed source whose examples go through a function; all else that is known of them stays.

    schema    what the function returns, where that is known
    numbered  whether keys are the numbers of examples, and not those of the source
    """

    def __init__(
        self, source: Source, function: Callable[[Any], Any], schema: Schema | None = None, *, numbered: bool = False
    ) -> None:
        self.source = source
        self.function = function
        self.schema = schema
        self._numbered = numbered

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"

    def __getitem__(self, index: int) -> Mapping[str, Value]:
        example: Mapping[str, Any] = self.function(self.source[index])
        return example

    @property
    def options(self) -> dict[str, object]:
        """What tells the function from another one."""
        return {**self.source.options, "function": described(self.function, "map")}

    @property
    def numbered(self) -> bool:
        """Whether keys are the numbers of examples."""
        return self._numbered

    @property
    def by_file(self) -> list[Array] | None:
        """How they are best read."""
        return self.source.by_file

    @property
    def runs_user_code(self) -> bool:
        """The function's."""
        return True

    def key(self, index: int) -> str:
        """The source's, or the number."""
        return str(position(index, len(self))) if self._numbered else self.source.key(index)

    def place(self, index: int) -> str:
        """The source's."""
        return self.source.place(index)

    def stamp(self, index: int) -> str:
        """The source's."""
        return self.source.stamp(index)

    def stamps(self, indices: Array) -> Sequence[str]:
        """Those of some examples."""
        return self.source.stamps(indices)


class RowFolders(Protocol):
    """The folder of each row, and all folders."""

    folders: list[str]

    def __call__(self, index: int, /) -> str: ...


class Loading(Source):
    """The rows of a listed source with files loaded into them.

    images  field -> column: the column's path is replaced by the bytes of that image, as they are
    root    the folder that paths are relative to and must stay in, one for all rows or one per row
    load    called with each row, its images loaded; what it returns is the example
    """

    def __init__(
        self, rows: Source, images: Mapping[str, str], root: str | RowFolders, load: Load | None = None
    ) -> None:
        self.rows = rows
        self.images = dict(images)
        self.root = root
        self.load = load
        self._stems: dict[str, dict[str, str]] = {}  # folder -> name without suffix -> name
        self.schema = None if load is not None else self._fields()
        self._known = self._listed_stamps()
        self.largest_download = 0 if load is not None else largest_of(self._known)  # user code runs on one thread

    def _fields(self) -> Schema:
        fields: dict[str, Field | Schema] = {field: Field(dtype="bytes", kind="image") for field in self.images}
        columns = set(self.images.values())
        fields.update((name, node) for name, node in (self.rows.schema or {}).items() if name not in columns)
        return Schema(fields)

    def _listed_stamps(self) -> Mapping[str, str]:
        """Stamps of images in a store: their folders are listed once, so that no image has to be asked for."""
        roots = [self.root] if isinstance(self.root, str) else self.root.folders
        if not self.images or not any(is_url(root) and not root.startswith("http") for root in roots):
            return NO_STAMPS
        paths = set(self._remote_paths())
        folders = sorted(set(map(parent_path, paths)))
        if len(folders) > MOST_FOLDERS:
            folders = sorted({root for root in roots if is_url(root)})
        found: dict[str, str] = {}
        listed: list[str] = []
        for folder in folders:
            if not any(folder.startswith(f"{above}/") for above in listed):
                listed.append(folder)
                with suppress(NotFoundError):  # loading such an image reports that it is missing
                    found.update(list_folder(folder).stamps)
        return {path: found[path] for path in paths if path in found}

    def _remote_paths(self) -> Iterator[str]:
        for column in self.images.values():
            known = self._columns.get(column)
            for index in range(len(self)):
                row = self.rows[index] if known is None else {column: known[index]}
                with suppress(SchemaError):  # the build deals with a row without a path
                    if is_url(path := self._path(index, row, column)):
                        yield path

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Loading({', '.join([*self.images, *(['load'] if self.load else [])])}, {self.rows!r})"

    def __getitem__(self, index: int) -> Mapping[str, Value]:
        index = position(index, len(self))
        row = dict(self.rows[index])
        loaded = {}
        for field, column in self.images.items():
            path = self._path(index, row, column)
            loaded[field] = read_file(path, self.place(index))
            check_image(loaded[field], path)
        for column in self.images.values():
            row.pop(column, None)
        example = {**loaded, **row}
        if self.load is None:
            return example
        result = self.load(example)
        if not isinstance(result, Mapping) and not hasattr(result, "load"):
            raise SchemaError(f"expected a dict from load(), got {type(result).__name__}", self.place(index))
        return result

    def names(self, column: str) -> Iterator[Value]:
        """The path that each row names in a column of images."""
        if column in self._columns:
            return iter(self._columns[column].to_list())
        return (self.rows[index].get(column) for index in range(len(self)))

    @property
    def options(self) -> dict[str, object]:
        """What tells the loading from another one."""
        return {} if self.load is None else {"load": described(self.load, "load")}

    def column(self, name: str) -> Any:
        """The values of a column of the rows, None where they would have to be loaded."""
        if name in self.images or self.load is not None:
            return None
        return self._columns.get(name)

    @property
    def _columns(self) -> Mapping[str, Any]:
        return self.rows.columns if isinstance(self.rows, TableSource) else {}

    @property
    def runs_user_code(self) -> bool:
        """That of `load`."""
        return self.load is not None

    def key(self, index: int) -> str:
        """The row's own key."""
        return self.rows.key(index)

    def place(self, index: int) -> str:
        """The row's own place."""
        return self.rows.place(index)

    def stamp(self, index: int) -> str:
        """That of the row and of each of its images."""
        return self.stamps(np.array([position(index, len(self))]))[0]

    def stamps(self, indices: Array) -> list[str]:
        """Those of some examples; images that no listing knows are looked at in parallel."""
        numbers = indices.tolist()
        rows = [self.rows[number] if self.images else {} for number in numbers]
        paths = [
            self._path(number, row, column)
            for number, row in zip(numbers, rows, strict=True)
            for column in self.images.values()
        ]
        told = iter(stamps_of_files(paths, self._known))
        return [" ".join([self.rows.stamp(number), *(next(told) for _ in self.images)]) for number in numbers]

    def _path(self, index: int, row: Mapping[str, Any], column: str) -> str:
        name = row.get(column)
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)  # the number of an image, without its suffix
        if not isinstance(name, str) or not name:
            got = "nothing" if not name else type(name).__name__
            raise SchemaError(f"expected a path in {column!r}, got {got}", self.rows.place(index))
        root = self.root if isinstance(self.root, str) else self.root(index)
        path = within(root, name, self.rows.place(index))
        if has_suffix(path, IMAGE_SUFFIXES) or is_url(path) or os.path.lexists(path):
            return path
        return self._with_suffix(path)

    def _with_suffix(self, path: str) -> str:
        """The image of a name without suffix; the name itself if there is none."""
        folder, stem = os.path.split(path)
        if folder not in self._stems:
            names = [entry.name for entry in entries(folder)] if os.path.isdir(folder) else []
            images = [name for name in names if has_suffix(name, IMAGE_SUFFIXES)]
            self._stems[folder] = {os.path.splitext(name)[0]: name for name in reversed(images)}
        return os.path.join(folder, self._stems[folder].get(stem, stem))


class LoadingBatches(Loading, BatchSource):
    """The rows of a table with images loaded into them, many at once."""

    rows: TableSource

    def take(self, indices: Array) -> Columns:
        """Load some examples as columns."""
        columns = self.rows.take(indices)
        loaded: Columns = {}
        for field, column in self.images.items():
            names = zip(indices.tolist(), columns[column], strict=True)
            paths = [self._path(index, {column: name}, column) for index, name in names]
            loaded[field] = _downloaded(paths) if any(map(is_url, paths)) else ImageFiles(paths)
        gone = set(self.images.values())
        return {**loaded, **{name: values for name, values in columns.items() if name not in gone}}


def load_files(rows: Source, images: Mapping[str, str], root: str | RowFolders, load: Load | None = None) -> Loading:
    """Return rows with files loaded into them: many at once if they are those of a table and nothing else is done."""
    many = load is None and isinstance(rows, TableSource)
    return (LoadingBatches if many else Loading)(rows, images, root, load)


def _downloaded(paths: Sequence[str]) -> Bytes:
    """Images of a store, downloaded in parallel, each of them sound."""
    images = read_files(paths)
    for data, path in zip(images, paths, strict=True):
        check_image(data, path)
    return Bytes.from_list(images)


def image_columns(image: str | Mapping[str, str] | None) -> dict[str, str]:
    """Which field is loaded from which column: "filename" stands for {"image": "filename"}."""
    if image is None:
        return {}
    if isinstance(image, str):
        return {"image": image}
    if isinstance(image, Mapping) and all(isinstance(word, str) for pair in image.items() for word in pair):
        return dict(image)
    raise SchemaError(f"expected image as a column or a dict of field: column, got {image!r}")


def check_columns(wanted: Sequence[str], known: Sequence[str], where: str) -> None:
    """The columns that options name are there."""
    present = set(known)
    for name in wanted:
        if name not in present:
            raise SchemaError(f"no column {name!r}", where, name_known(name, known, "columns"))


def split_rows(names: Sequence[Value], where: str) -> dict[str, Array]:
    """The rows of each split, by the split that a column names."""
    rows: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name:
            got = "nothing" if name is None or name == "" else repr(name)
            raise SchemaError(f"expected the name of a split, got {got}", f"{where}, row {number}")
        rows.setdefault(name, []).append(number)
    return {name: np.array(rows[name], dtype=np.int64) for name in sorted(rows, key=split_order)}
