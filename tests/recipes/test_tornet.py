"""TorNet: we build of its files what the builder of TFDS would have stored, and loaders give what theirs give."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

import penstock as ps
from penstock.cli import cli
from penstock.recipes import tornet

RADAR = ("DBZ", "VEL", "KDP", "RHOHV", "ZDR", "WIDTH")
YEARS = (2013, 2014)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tornet.write_sample(tmp_path_factory.mktemp("tornet"), files=3, years=YEARS, seed=5)


@pytest.fixture(scope="module")
def data_dir(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where TFDS keeps its datasets, with TorNet in it, in both formats."""
    folder = tmp_path_factory.mktemp("data")
    tornet.build(files, folder / "tornet" / "1.1.0", format=["array_record", "tfrecord"])
    return folder


@pytest.fixture(scope="module")
def arrays(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, in ArrayRecord alone."""
    folder = tmp_path_factory.mktemp("arrays")
    tornet.build(files, folder / "tornet" / "1.1.0", format="array_record")
    return folder


@pytest.fixture(scope="module")
def dataset(data_dir: Path) -> ps.Dataset:
    return ps.load(data_dir / "tornet" / "1.1.0")


# What the builder of mit-ll/tornet stores, said again from what is known of it


def features() -> Any:
    one, frames = {"shape": (1,)}, {"shape": (4,)}
    tensor = tfds.features.Tensor
    return tfds.features.FeaturesDict(
        {
            **{name: tensor(shape=(4, 120, 240, 2), dtype=np.float32, encoding="zlib") for name in RADAR},
            "range_folded_mask": tensor(shape=(4, 120, 240, 2), dtype=np.float32, encoding="zlib"),
            "label": tensor(**frames, dtype=np.uint8),
            **{name: tensor(**one, dtype=np.int64) for name in ("category", "event_id", "ef_number")},
            **{name: tensor(**one, dtype=np.float32) for name in ("az_lower", "az_upper", "rng_lower", "rng_upper")},
            "time": tensor(**frames, dtype=np.int64),
            **{name: tensor(**one, dtype=np.int64) for name in ("tornado_start_time", "tornado_end_time")},
        }
    )


def expected(path: Path) -> dict[str, Any]:
    def seconds(text: str) -> float:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()

    with h5py.File(path) as file:
        said = {name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()}
        example = {name: file[name][...] for name in RADAR}
        example["range_folded_mask"] = file["range_folded_mask"][...].astype(np.float32)
        label = file["frame_labels"][...]
        label[-1] = said["ef_number"] >= 0
        first = seconds(file["time"].attrs["units"].decode().removeprefix("seconds since "))
        numbers = {"category": ["TOR", "NUL", "WRN"].index(said["category"])}
        numbers |= {name: said[name] for name in ("event_id", "ef_number")}
        for name in ("tornado_start_time", "tornado_end_time"):
            numbers[name] = seconds(said[name]) if said["ef_number"] >= 0 else 0
        example |= {"label": label, "time": (file["time"][...] + first).astype(np.int64)}
        example |= {name: np.array([value], np.int64) for name, value in numbers.items()}
        for side, limits in (("az", "azimuth_limits"), ("rng", "range_limits")):
            low, high = file[limits][...]
            example |= {f"{side}_lower": np.array([low]), f"{side}_upper": np.array([high])}
        return example


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert value.dtype == b[name].dtype, name
        np.testing.assert_array_equal(value, b[name], err_msg=name)


def test_every_example_is_that_of_its_file(files: Path, dataset: ps.Dataset) -> None:
    assert list(dataset) == ["train-2013", "train-2014", "test-2013", "test-2014"]
    for name in dataset:
        split = dataset[name]
        assert len(split) == 3
        keys = [split.key(number) for number in range(3)]
        assert sorted(keys) == sorted(str(p.relative_to(files)) for p in files.glob(f"{name.replace('-', '/')}/*.nc"))
        for number, key in enumerate(keys):
            assert key is not None
            same(split[number], expected(files / key))
    assert any(np.isnan(dataset["train-2013"][0]["DBZ"]).ravel())


def test_labels_are_mended(files: Path, dataset: ps.Dataset) -> None:
    stored = [example for name in dataset for example in dataset[name]]
    assert {tuple(example["label"]) for example in stored} == {(0, 0, 0, 0), (0, 0, 1, 1)}
    for example in stored:
        assert example["label"][-1] == (example["ef_number"][0] >= 0)
        assert (example["tornado_start_time"][0] > 0) == (example["ef_number"][0] >= 0)


def test_tfds_would_have_prepared_the_same(files: Path, arrays: Path, tmp_path: Path) -> None:
    class Tornet(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = "tornet"
        VERSION = tfds.core.Version("1.1.0")

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=features())

        def _split_generators(self, dl_manager: Any) -> Any:
            names = [f"{kind}-{year}" for kind in ("train", "test") for year in YEARS]
            return {name: self._generate_examples(name) for name in names}

        def _generate_examples(self, split: str) -> Any:
            for path in sorted(files.glob(f"{split.replace('-', '/')}/*.nc")):
                yield str(path.relative_to(files)), expected(path)

    theirs = Tornet(data_dir=str(tmp_path), file_format="array_record")
    theirs.download_and_prepare()
    there, ours = tmp_path / "tornet" / "1.1.0", arrays / "tornet" / "1.1.0"
    names = {path.name for path in there.glob("*.array_record*")}
    assert names == {path.name for path in ours.glob("*.array_record-*[0-9]")}
    assert "tornet-train-2013.array_record-00000-of-00001" in names
    assert json.loads((ours / "features.json").read_text()) == json.loads((there / "features.json").read_text())
    mine = Tornet(data_dir=str(arrays))  # it finds itself prepared
    mine.download_and_prepare()
    assert (ours / "penstock.json").exists()
    for split, info in theirs.info.splits.items():
        assert mine.info.splits[split].num_examples == info.num_examples
        before, now = (builder.as_data_source(split) for builder in (theirs, mine))
        assert len(before) == len(now)
        for number in range(len(before)):  # in the published order
            same(dict(now[number]), dict(before[number]))
    for number, example in enumerate(ps.load(there)["train-2014"]):  # and what TFDS prepared opens here
        same(example, dict(theirs.as_data_source("train-2014")[number]))


BY_NAME = """
import sys, numpy as np, penstock as ps
import tensorflow_datasets as tfds
source, ours = tfds.data_source("tornet"), ps.load("tfds:tornet")
assert list(source) == list(ours)
assert "tensorflow" not in sys.modules
for name in source:
    for number in range(len(source[name])):
        a, b = source[name][number], ours[name][number]
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[key], b[key], equal_nan=a[key].dtype.kind == "f") for key in b), name
"""


def test_the_order_is_the_published_one(files: Path, tmp_path: Path) -> None:
    """Ascending MD5 of split and catalog name, by the function and by the command, unless another one is asked for."""

    def published(split: str, keys: list[str]) -> list[str]:
        return sorted(keys, key=lambda key: hashlib.md5(f"{split}{key}".encode()).digest())

    ours = tornet.build(files, tmp_path / "ours", years=[2013])
    result = CliRunner().invoke(cli, ["build", "tornet", str(files), str(tmp_path / "command")])
    assert result.exit_code == 0, result.output
    for dataset in (ours, ps.load(tmp_path / "command")):
        for name in ours:
            keys = [str(dataset[name].key(number)) for number in range(len(dataset[name]))]
            assert keys == published(name, keys)
    hashed = tornet.build(files, tmp_path / "hashed", order="source", years=[2013])
    assert any(
        [hashed[name].key(n) for n in range(len(hashed[name]))] != [ours[name].key(n) for n in range(len(ours[name]))]
        for name in ours
    )


def test_tfds_finds_it_by_its_name(arrays: Path) -> None:
    """As the page of the original project has it; in a process of its own, as TFDS reads the variable once."""
    environment = os.environ | {"TFDS_DATA_DIR": str(arrays)}
    done = subprocess.run([sys.executable, "-c", BY_NAME], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tfds_loads_it(data_dir: Path, dataset: ps.Dataset) -> None:
    both = "train-2013+train-2014"
    for theirs, ours in zip(tfds.load("tornet", split=both, data_dir=data_dir), dataset[both], strict=True):
        same({name: value.numpy() for name, value in theirs.items()}, dict(sorted(ours.items())))
    first, second = tfds.load("tornet", split=["train-2013", "train-2014"], data_dir=data_dir)
    assert len(first) == len(second) == 3
    with pytest.raises(TypeError, match="splits"):  # what the page of the original project says
        tfds.load("tornet", splits=["train-2013"], data_dir=data_dir)
    source = tfds.data_source("tornet", split="test-2013", data_dir=data_dir)
    for number, example in enumerate(dataset["test-2013"]):
        same(dict(source[number]), example)


# The catalog


def test_the_command_builds_where_tfds_looks(files: Path, tmp_path: Path, dataset: ps.Dataset) -> None:
    some = tmp_path / "some"
    shutil.copytree(files, some)
    gone = sorted((some / "train" / "2013").iterdir())[0]
    gone.unlink()
    shutil.rmtree(some / "test" / "2014")
    environment = {"TFDS_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "120"}
    asked = ["build", "tornet", str(some), "--format", "array_record"]
    result = CliRunner().invoke(cli, asked, env=environment)
    assert result.exit_code == 0, result.output
    assert "missing, and left out: train-2013 (1 of 3 files), test-2014 (all files)" in result.output
    built = ps.load(tmp_path / "data" / "tornet" / "1.1.0")
    assert list(built) == ["train-2013", "train-2014", "test-2013"]
    assert len(built["train-2013"]) == 2
    same(built["train-2014"][1], dataset["train-2014"][1])
    (shard,) = (tmp_path / "data").rglob("tornet-train-2013.array_record-00000-of-00001")
    assert "uncompressed" in ps.ArrayRecordReader(shard).writer_options  # what is large in it is compressed already
    told = json.loads(CliRunner().invoke(cli, [*asked, str(tmp_path / "x"), "--json"], env=environment).output)
    assert told["source"] == "tornet"
    assert CliRunner().invoke(cli, [*asked, "a", "b"]).exit_code == 2
    assert CliRunner().invoke(cli, [*asked, str(tmp_path / "y"), "--dry-run"], env=environment).exit_code == 0


def test_what_is_missing_is_said(files: Path, tmp_path: Path) -> None:
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "test")
    with pytest.warns(UserWarning, match=r"test-2013 \(all files\), test-2014 \(all files\)"):
        built = tornet.build(tmp_path, tmp_path / "built")
    assert list(built) == ["train-2013", "train-2014"]
    assert tornet.source(tmp_path).missing == {"test-2013": 3, "test-2014": 3}
    assert tornet.source(files).said == ""
    with pytest.raises(ps.NotFoundError, match="expected files of 2022, got none"):
        tornet.source(files, years=[2022])
    shutil.rmtree(tmp_path / "train")
    with pytest.raises(ps.NotFoundError, match="expected files of the catalog, got none of 12"):
        tornet.recordings(tmp_path)


def test_the_year_is_that_of_the_end_unless_told(files: Path) -> None:
    by_end, by_start = tornet.source(files), tornet.source(files, year_by="start_time")
    assert {name: len(by_end[name]) for name in by_end} == dict.fromkeys(by_end, 3)
    counts = {name: len(by_start[name]) for name in by_start}
    assert counts == {"train-2012": 1, "train-2013": 3, "train-2014": 2, "test-2013": 3, "test-2014": 3}
    assert list(tornet.source(files, years=[2014])) == ["train-2014", "test-2014"]
    with pytest.raises(ps.SchemaError, match="expected end_time or start_time, got 'month'"):
        tornet.source(files, year_by="month")


@pytest.mark.parametrize(
    ("catalog", "said"),
    [
        (None, r"expected catalog\.csv beside train/ and test/, got nothing at"),
        ("type,end_time\ntrain,2013-01-01\n", "expected a value in the column 'filename', got none"),
        ("type,start_time,end_time,filename\neval,2013,2013,a.nc\n", "expected type train or test, got 'eval'"),
        ("type,start_time,end_time,filename\ntest,May,2013,a.nc\n", "expected a time such as"),
        ("type,start_time,end_time,filename\ntest,2013,2013,../../a.nc\n", "expected a path below"),
    ],
)
def test_a_catalog_that_makes_no_sense_is_an_error(tmp_path: Path, catalog: str | None, said: str) -> None:
    if catalog is not None:
        (tmp_path / "catalog.csv").write_text(catalog)
    with pytest.raises(ps.PenstockError, match=said):
        tornet.source(tmp_path)


def test_the_root_comes_from_the_environment(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORNET_ROOT", str(files))
    assert len(tornet.recordings()) == 12
    monkeypatch.delenv("TORNET_ROOT")
    with pytest.raises(ps.NotFoundError, match="Give it, or set TORNET_ROOT"):
        tornet.source()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.attrs.__setitem__("category", "HAIL"), "HAIL"),
        (lambda file: file.attrs.__delitem__("event_id"), "event_id"),
        (lambda file: file.__delitem__("VEL"), "VEL"),
    ],
)
def test_a_bad_file_is_named(files: Path, tmp_path: Path, damage: Any, said: str) -> None:
    shutil.copytree(files / "train" / "2013", tmp_path / "train" / "2013")
    shutil.copy(files / "catalog.csv", tmp_path)
    bad = sorted(tmp_path.glob("train/2013/*.nc"))[1]
    with h5py.File(bad, "r+") as file:
        damage(file)
    with pytest.raises(ps.ExampleError, match=rf"{said}.*{bad.name}"):
        ps.build(tornet.source(tmp_path), tmp_path / "built")
    built = ps.build(tornet.source(tmp_path), tmp_path / "rest", on_error="quarantine")
    assert (len(built["train-2013"]), built.bad) == (2, 1)


def test_events_stay_together(files: Path, tmp_path: Path) -> None:
    whole = tornet.recordings(files)
    parts = ps.split(whole, train=0.6, test=0.4, group="event_id", seed=2)
    assert tornet.shared_events(parts) == {}
    halves = ps.splits(train=tornet.source(files)["train-2013"], test=whole)
    assert set(tornet.shared_events(halves).values()) == {("train", "test")}
    built = ps.build(parts, tmp_path / "by_event", schema=tornet.SCHEMA, info=tornet.INFO)
    assert sum(len(built[name]) for name in built) == 12
    assert built.leaks == 0
    events = [{int(example["event_id"][0]) for example in built[name]} for name in ("train", "test")]
    assert not events[0] & events[1]
    for row in whole.rows:  # a catalog without them: the files know
        del row["event_id"]
    assert list(whole.column("event_id"))[:2] == [2013000, 2013000]
    with pytest.raises(ps.SchemaError, match="no column 'colour'"):
        whole.column("colour")


# Loaders


def plain(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: np.asarray(value) for name, value in batch.items()}
    return np.asarray(batch)


def batches(framework: str, split: Any, size: int, **options: Any) -> list[tuple[Any, ...]]:
    found = tornet.loader(split, framework, size, **options)
    items = [found[number] for number in range(len(found))] if framework == "keras" else found
    return [tuple(map(plain, item)) for item in items]


@pytest.mark.parametrize("framework", ["numpy", "torch", "tf", "keras"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": {"wN": 1, "w0": 2, "w1": 3, "w2": 4, "wW": 0.5}, "include_az": True},
        {"tilt_last": False, "select_keys": ["VEL", "coordinates"], "weights": {}},
    ],
    ids=["plain", "weights", "selected"],
)
def test_loaders_give_what_the_project_gives(framework: str, options: dict[str, Any], dataset: ps.Dataset) -> None:
    split = dataset["train-2013+train-2014"]
    found = batches(framework, split, 4, **options)
    assert [len(item[1]) for item in found] == [4, 2]
    whole = list(split)
    weights = options.get("weights")
    at = 0
    for x, y, *w in found:
        assert len(x) == (19 if "select_keys" not in options else 2)
        assert y.dtype == np.uint8
        for row in range(len(y)):
            example = whole[at]
            last = {name: value[-1] for name, value in example.items()}
            for name, value in last.items():
                if name in x:
                    turned = value.transpose(2, 0, 1) if value.ndim == 3 and "tilt_last" in options else value
                    np.testing.assert_array_equal(x[name][row], turned, err_msg=name)
                    assert x[name].dtype == value.dtype
            np.testing.assert_allclose(x["coordinates"][row], where(last, **options), rtol=1e-6)
            assert y[row] == last["label"]
            if weights is not None:
                assert w[0].dtype == (np.float32 if framework == "tf" else np.float64)
                assert w[0][row] == weigh(last, **weights)
            at += 1
        assert len(w) == (weights is not None)


def where(last: Any, include_az: bool = False, tilt_last: bool = True, **_: Any) -> Any:
    reach = np.linspace((last["rng_lower"] + 250) * 1e-5, (last["rng_upper"] - 250) * 1e-5, 240)
    turn = np.linspace(np.pi / 180 * (90 - last["az_lower"]), np.pi / 180 * (90 - last["az_upper"]), 120)
    r, a = np.meshgrid(np.maximum(reach, 2125e-5), turn, indexing="xy")
    return np.stack([r, a, 1 / r] if include_az else [r, 1 / r], axis=-1 if tilt_last else 0)


def weigh(last: Any, wN: float = 1, w0: float = 1, w1: float = 1, w2: float = 1, wW: float = 0.5) -> float:  # noqa: N803
    if last["ef_number"] >= 0:
        return [w0, w1, w2][min(2, int(last["ef_number"]))]
    return wW if last["category"] == 2 else wN


def test_coordinates_are_those_that_were_measured() -> None:
    limits = {"rng_lower": 66_000.0, "rng_upper": 126_500.0, "az_lower": 316.0, "az_upper": 376.0}
    x = {name: np.array([value], np.float32) for name, value in limits.items()}
    found = tornet.coordinates(x, include_az=True)
    assert (found.shape, found.dtype) == ((1, 120, 240, 3), np.float32)
    np.testing.assert_allclose(found[0, 0, 0], [0.6625, -3.9444, 1.5094], atol=5e-5)
    np.testing.assert_allclose(found[0, -1, -1], [1.2625, -4.9916, 0.7921], atol=5e-5)
    near = tornet.coordinates(x | {"rng_lower": np.array([1000.0], np.float32)})
    assert near[0, 0, 0, 0] == np.float32(2125e-5)


def test_loaders_of_years_and_of_any_order(
    data_dir: Path, dataset: ps.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    by_year = batches("numpy", [2013], 3)
    np.testing.assert_array_equal(by_year[0][0]["time"], batches("numpy", "train-2013", 3)[0][0]["time"])
    shuffled = batches("torch", dataset["test-2013+test-2014"].shuffle(seed=3), 6)
    times = [int(example["time"][-1]) for example in dataset["test-2013+test-2014"]]
    assert sorted(shuffled[0][0]["time"]) == sorted(times)
    assert list(shuffled[0][0]["time"]) != times


def test_torch_reads_it_in_workers(dataset: ps.Dataset) -> None:
    """What the original project can't do: torch over TFDS."""
    torch = pytest.importorskip("torch")
    found = tornet.loader(dataset["train-2013"], "torch", 1, select_keys=["DBZ"], weights={})
    items = list(torch.utils.data.DataLoader(found, batch_size=None, num_workers=2))
    assert sorted(float(x["DBZ"].nan_to_num().sum()) for x, _, _ in items) == sorted(
        float(torch.from_numpy(example["DBZ"][-1]).nan_to_num().sum()) for example in dataset["train-2013"]
    )


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("jax",), {}, "expected numpy, torch, tf, keras, got 'jax'"),
        ((), {"weights": {"w9": 1}}, "unknown weight 'w9'"),
        ((), {"select_keys": ["DBZZ"]}, "Did you mean 'DBZ'"),
    ],
)
def test_unknown_options_are_errors(dataset: ps.Dataset, arguments: Any, options: Any, said: str) -> None:
    with pytest.raises(ps.SchemaError, match=said):
        tornet.loader(dataset["train-2013"], *arguments, **options)
    with pytest.raises(ps.SchemaError, match="expected years or a split"):
        tornet.loader(dataset["train-2013"].shuffle(), "keras")


@pytest.mark.parametrize("framework", ["torch", pytest.param("keras", marks=pytest.mark.slow)])
def test_the_example_trains(root: Path, files: Path, framework: str) -> None:
    """In a process of its own: what torch's optimizers import ends one that TensorFlow is in."""
    example = str(root / "examples" / "tornet_cnn.py")
    command = [sys.executable, example, str(files), "--epochs", "4", "--only", framework]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, (name, *losses) = (line.split() for line in done.stdout.splitlines())
    assert (said[0], name) == ("3", framework)
    assert len(losses) == 4
    assert all(0 < float(loss) < 10 for loss in losses)
