"""Any JSON value anywhere in metadata gives the right examples or an error of Penstock, quickly, in little memory."""

from __future__ import annotations

import contextlib
import copy
import json
import resource
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.building.journal import JOURNAL
from penstock.cli import main
from penstock.dataset.datum import describe
from penstock.dataset.manifest import MANIFEST, WORK

COUNT = 6
SCHEMA = {
    "x": "int64",
    "words": "list[str]",
    "score": ps.Field(dtype="float32", shape=(2,), encoding="zlib"),
    "label": ps.Field(dtype="int64", classes=("cat", "dog")),
}
MOST_SECONDS = 10.0
MOST_MEMORY = 1 << 29

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 12),
        st.sampled_from([2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, -(10**30)]),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["", ".", "..", "../x", "/etc/passwd", "\ud800", "\0", "x" * 5000, "train", "int64", "9" * 30]),
        st.sampled_from(
            ["float32[1000000000]", "list[int64]", "bytes", "int64[2,3]", "str?", "tfrecord", "array_record"]
        ),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


def changed(value: Any, path: tuple[Any, ...], new: Any, how: str) -> Any:
    """A value with a new one in a place, or without what was there, or under another name."""
    if not path:
        return new
    found = copy.deepcopy(value)
    holder = found
    for step in path[:-1]:
        holder = holder[step]
    if how == "remove":
        del holder[path[-1]]
    elif how == "rename" and isinstance(holder, dict) and isinstance(new, str):
        holder[new] = holder.pop(path[-1])
    elif how == "add" and isinstance(holder, list):
        holder.append(new)
    else:
        holder[path[-1]] = new
    return found


def draw_change(data: st.DataObject, value: Any) -> Any:
    path = data.draw(st.sampled_from(list(places(value))))
    return changed(value, path, data.draw(json_values), data.draw(st.sampled_from(["set", "remove", "rename", "add"])))


def check_read(path: Path, count: int | None = COUNT, **options: Any) -> None:
    """All examples, or an error of Penstock."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = ps.load(path, **options)
            dataset.info(), repr(dataset), len(dataset)
            read = [example for split in dataset.values() for batch in split.batch(4) for example in [batch]]
            one = [dataset[split][0] for split in dataset if len(dataset[split])]
            total = sum(map(len, dataset.values()))
        assert one
        assert read
        assert count is None or total == count
    except ps.PenstockError:
        pass
    assert time.monotonic() - began < MOST_SECONDS
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_MEMORY


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in both formats, with the files of TFDS; its manifest has no checksums, as an edited one."""
    path = tmp_path_factory.mktemp("hostile") / "toy"
    rows = [{"x": n, "words": ["a"] * n, "score": [n, n], "label": n % 2} for n in range(COUNT)]
    ps.build(rows, path, schema=SCHEMA, shards=2, format=["tfrecord", "array_record"])
    said = json.loads((path / MANIFEST).read_text())
    del said["checksums"], said["crc32c"]
    (path / MANIFEST).write_text(json.dumps(said))
    return path


Rewrite = Callable[[Path, Any], None]


def rewrite(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8", errors="surrogatepass")


loose = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.alone
@loose
@given(data=st.data())
def test_any_value_in_a_manifest(toy: Path, data: st.DataObject) -> None:
    path = toy / MANIFEST
    original = path.read_text()
    format = data.draw(st.sampled_from([None, "tfrecord", "array_record"]))
    try:
        rewrite(path, draw_change(data, json.loads(original)))
        check_read(toy, format=format)
    finally:
        path.write_text(original)


@loose
@given(data=st.data())
def test_any_value_in_checksums(tmp_path_factory: pytest.TempPathFactory, toy: Path, data: st.DataObject) -> None:
    from penstock.dataset.manifest import Manifest

    said = json.loads((toy / MANIFEST).read_text())
    said["checksums"] = {"files": {"features.json": 7}, "keys": {"train": [1, None]}}
    assert Manifest.from_json(said, "here").to_json() == said
    said["checksums"] = draw_change(data, said["checksums"])
    with contextlib.suppress(ps.CorruptionError):
        Manifest.from_json(said, "here")


@pytest.mark.alone
@pytest.mark.parametrize("file", ["dataset_info.json", "features.json"])
@loose
@given(data=st.data())
def test_any_value_in_the_files_of_tfds(toy: Path, file: str, data: st.DataObject) -> None:
    manifest = (toy / MANIFEST).read_text()
    original = (toy / file).read_text()
    try:
        (toy / MANIFEST).unlink()
        rewrite(toy / file, draw_change(data, json.loads(original)))
        check_read(toy)
    finally:
        (toy / file).write_text(original)
        (toy / MANIFEST).write_text(manifest)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "toy.tfrecord"
    ps.build([{"x": n, "y": [n, n]} for n in range(COUNT)], path)
    return path


@pytest.mark.alone
@loose
@given(data=st.data())
def test_any_value_in_a_schema_file(plain: Path, data: st.DataObject) -> None:
    path = plain.with_name(plain.name + ".schema.json")
    original = path.read_text()
    said = json.loads(original)
    if data.draw(st.booleans()):
        del said["crc32c"]
    try:
        rewrite(path, draw_change(data, said))
        check_read(plain)
    finally:
        path.write_text(original)


@pytest.mark.alone
@loose
@given(data=st.data())
def test_any_byte_in_an_index(plain: Path, data: st.DataObject) -> None:
    path = plain.with_name(plain.name + ".index")
    original = path.read_bytes()
    at = data.draw(st.integers(0, len(original) - 1))
    new = data.draw(st.binary(max_size=16))
    try:
        path.write_bytes(original[:at] + new + original[at + len(new) * data.draw(st.integers(0, 1)) :])
        check_read(plain)
    finally:
        path.write_bytes(original)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as Datum has it: without a manifest."""
    path = tmp_path_factory.mktemp("exported") / "toy"
    schema = {"x": "int64", "y": "float32[?]", "name": "str"}
    ps.build([{"x": n, "y": [n, n], "name": "a"} for n in range(COUNT)], path, schema=schema)
    describe(path)
    for name in (MANIFEST, "dataset_info.json", "features.json"):
        (path / name).unlink()
    return path


@pytest.mark.alone
@pytest.mark.parametrize("file", ["shard_info.json", "datum_to_type_and_shape_mapping.json"])
@loose
@given(data=st.data())
def test_any_value_in_the_files_of_datum(exported: Path, file: str, data: st.DataObject) -> None:
    original = (exported / file).read_text()
    try:
        rewrite(exported / file, draw_change(data, json.loads(original)))
        check_read(exported, count=None if file == "shard_info.json" else COUNT)
    finally:
        (exported / file).write_text(original)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A build that was cut off in its commit, and the lines of its journal."""
    path = tmp_path_factory.mktemp("begun") / "toy"
    lines: list[Any] = []
    from penstock.building.targets import directory as place

    publish = place.Directory.publish

    def stop(self: Any, commit: dict[str, Any]) -> Any:
        lines.extend(map(json.loads, (path / WORK / JOURNAL).read_text().splitlines()))
        raise KeyboardInterrupt

    place.Directory.publish = stop  # type: ignore[method-assign]
    try:
        with pytest.raises(KeyboardInterrupt):
            ps.build([{"x": n} for n in range(COUNT)], path, shards=2, workers=1)
    finally:
        place.Directory.publish = publish  # type: ignore[method-assign]
    assert lines
    return path, lines


@settings(loose, max_examples=60)
@given(data=st.data())
def test_any_value_in_a_journal(
    tmp_path_factory: pytest.TempPathFactory, begun: tuple[Path, list[Any]], data: st.DataObject
) -> None:
    begun_path, lines = begun
    folder = tmp_path_factory.mktemp("again")
    path = folder / "toy"
    (folder / "precious.txt").write_text("mine")
    shutil.copytree(begun_path, path)
    line = data.draw(st.integers(0, len(lines) - 1))
    new = [*lines[:line], draw_change(data, lines[line]), *lines[line + 1 :]]
    (path / WORK / JOURNAL).write_text("".join(json.dumps(each) + "\n" for each in new))
    try:
        ps.build([{"x": n} for n in range(COUNT)], path, shards=2, workers=1)
        assert sorted(int(example["x"]) for example in ps.load(path)["train"]) == list(range(COUNT))
    except ps.PenstockError:
        pass
    assert (folder / "precious.txt").read_text() == "mine"
    shutil.rmtree(folder)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_a_count_of_records_that_is_not_that_of_the_shard(tmp_path: Path, format: str, count: int) -> None:
    ps.build([{"x": n} for n in range(COUNT)], tmp_path / "toy", shards=2, format=format)
    said = json.loads((tmp_path / "toy" / MANIFEST).read_text())
    del said["checksums"], said["crc32c"]
    said["splits"]["train"]["records"][0] = count
    (tmp_path / "toy" / MANIFEST).write_text(json.dumps(said))
    with pytest.raises(ps.CorruptionError, match="records"):
        list(ps.load(tmp_path / "toy")["train"])
    assert main(["verify", "-q", str(tmp_path / "toy")]) == 1
