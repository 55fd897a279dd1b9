"""What TFDS prepared and someone copied into a store: the same examples as from the directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import S3, Nginx
from tests.support.tfds_cases import F, picture, prepare

import penstock as ps
from penstock.storage.open import open_store

FORMATS = ["tfrecord", "array_record"]
FEATURES = {
    "number": np.int64,
    "image": F.Image(shape=(4, 6, 3)),
    "label": F.ClassLabel(names=["cat", "dog"]),
    "animals": F.Sequence(F.ClassLabel(names=["cow", "hen", "pig"])),
    "sound": F.Video(shape=(None, 4, 5, 3)),
}


def example(number: int) -> dict[str, Any]:
    frames = np.stack([picture(4, 5, 3)] * 2)
    animals = ["pig", "hen"][: number % 3]
    return {"number": number, "image": picture(4, 6, 3), "label": number % 2, "animals": animals, "sound": frames}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories that TFDS itself has made, in each format."""
    folder = tmp_path_factory.mktemp("prepared")
    splits = {"train": [example(number) for number in range(40)], "test": [example(number) for number in range(3)]}
    made = (prepare(folder / name, F.FeaturesDict(FEATURES), splits, file_format=name) for name in FORMATS)
    return {name: Path(builder.data_dir) for name, builder in zip(FORMATS, made, strict=True)}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("where", ["s3", "http"])
def test_a_store_gives_what_the_directory_gives(
    prepared: dict[str, Path], format: str, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if where == "s3":
        bucket = request.getfixturevalue("s3")
        root: Path = request.getfixturevalue("s3_server").root / bucket.removeprefix("s3://")
        url = f"{bucket}/toy_set/1.0.0"
    else:
        server: Nginx = request.getfixturevalue("http_server")
        root, url = server.root / format, f"{server.endpoint}/{format}/toy_set/1.0.0"
    shutil.copytree(prepared[format], root / "toy_set" / "1.0.0")
    here, there = ps.load(prepared[format]), ps.load(url, cache=tmp_path)
    assert (there.name, there.schema, there.unread, list(there)) == (here.name, here.schema, here.unread, list(here))
    assert there.schema["label"].classes == ("cat", "dog")
    assert there.info()["tfds"] == here.info()["tfds"]
    assert there.fingerprint() == here.fingerprint()
    assert not list(tmp_path.rglob("*-of-*")), "no shard has come yet"
    np.testing.assert_equal(there["train"][17], here["train"][17])
    assert bool(list(tmp_path.rglob("*-of-*"))) == (format == "tfrecord"), "what has an index is read by itself"
    for loader in (lambda split: split.batch(7), lambda split: split.shuffle(seed=3, window=8).batch(7)):
        ours, theirs = ([batch["number"].tolist() for batch in loader(each["train"])] for each in (there, here))
        assert ours == theirs
    np.testing.assert_equal(list(there["test"]), list(here["test"]))


def test_what_is_wrong_in_a_store_is_said(prepared: dict[str, Path], s3: str, s3_server: S3, tmp_path: Path) -> None:
    folder = s3_server.root / s3.removeprefix("s3://") / "toy_set"
    shutil.copytree(prepared["tfrecord"], folder)
    shard = next(folder.glob("*-train.tfrecord-*[0-9]"))
    store, name = open_store(f"{s3}/toy_set/{shard.name}")
    data = bytearray(shard.read_bytes())
    store.publish(name, bytes(data))
    loaded = ps.load(f"{s3}/toy_set", cache=tmp_path)["train"]
    data[len(data) // 2] ^= 1
    store.publish(name, bytes(data))
    with pytest.raises(ps.StorageError, match="got another in its place"):
        list(loaded.batch(10))
    with pytest.raises(ps.CorruptionError, match=shard.name):
        list(ps.load(f"{s3}/toy_set", cache=tmp_path)["train"].batch(10))
    shard.unlink()
    with pytest.raises(ps.NotFoundError, match=f"expected an object, got nothing - at {s3}/toy_set/{shard.name}"):
        ps.load(f"{s3}/toy_set", cache=tmp_path)
    (folder / "features.json").write_bytes(b"{")
    with pytest.raises(ps.CorruptionError, match=f"{s3}/toy_set/features.json"):
        ps.load(f"{s3}/toy_set", cache=tmp_path)
