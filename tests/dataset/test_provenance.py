"""From a record to its example's key, and back; and the order that FORMAT.md promises."""

from __future__ import annotations

import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock._core import hash_keys
from penstock.building.api import build
from penstock.cli import main
from penstock.dataset.manifest import KEYS_SUFFIX, read_manifest
from penstock.dataset.provenance import Place, place_of_record, places_of, read_keys
from penstock.errors import ArgumentError, CorruptionError, RecordIndexError, StorageError
from penstock.records.codec import Codec
from penstock.records.tfrecord import TFRecordReader
from penstock.schema.example_class import Example, Skip
from penstock.sources.splits import splits

ROWS = [{"__key__": f"k{number}", "x": number} for number in range(50)]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    build(splits(train=ROWS, test=ROWS[:10]), tmp_path / "toy", shards=3)
    return tmp_path / "toy"


def test_there_and_back(toy: Path) -> None:
    codec = Codec(read_manifest(toy).schema)
    for number in range(50):
        place = place_of_record(toy, "train", number)
        example = codec.decode_example(TFRecordReader(toy / place.file)[place.record])
        assert place.key == f"k{example['x']}"
        assert place in places_of(toy, place.key)
    assert place_of_record(toy, "train", -1) == place
    assert [place.split for place in places_of(toy, "k3")] == ["train", "test"]


def test_what_is_not_there(toy: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no record was made from 'k99' - at .*toy"):
        places_of(toy, "k99")
    with pytest.raises(ArgumentError, match=r"no split 'tset' - at .*Did you mean 'test'"):
        place_of_record(toy, "tset", 0)
    with pytest.raises(StorageError, match=r"expected the directory of a dataset, got a file - at .*penstock.json"):
        place_of_record(toy / "penstock.json", "test", 0)
    with pytest.raises(RecordIndexError, match="record 10 is outside of test, which has 10"):
        place_of_record(toy, "test", 10)


class Several(Example):
    name: Skip[str]
    x: int

    def split(self) -> Any:
        for number in range(3):
            yield self.replace(x=number)


def test_pieces_are_found_by_the_key_of_the_whole(tmp_path: Path) -> None:
    build([Several(name="a"), Several(name="a/1")], tmp_path / "toy")
    assert sorted(place.key for place in places_of(tmp_path / "toy", "a")) == ["a/0", "a/1", "a/2"]
    assert [place.key for place in places_of(tmp_path / "toy", "a/1")] == ["a/1"]
    assert len(places_of(tmp_path / "toy", "a/1/2")) == 1


def test_the_command(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(toy), "--record", "train:7"]) == 0
    said = capsys.readouterr().out
    assert said == f"{place_of_record(toy, 'train', 7)}\n"
    assert main(["info", str(toy), "--key", "k3", "--json"]) == 0
    assert [Place(**json.loads(line)) for line in capsys.readouterr().out.splitlines()] == places_of(toy, "k3")
    assert main(["info", str(toy), "--key", "k3", "--record", "train:7"]) == 2
    assert main(["info", str(toy), "--record", "train"]) == 2


def test_records_stand_in_the_promised_order(toy: Path) -> None:
    assert int(hash_keys(["0"], 0, "train")[0]) == 14026246264401924922
    shards = read_manifest(toy).splits["train"]
    keys = [key for shard in shards for key in read_keys(toy / shard.file)]
    hashes = hash_keys(keys, 0, "train").tolist()
    assert hashes == sorted(hashes)
    cuts = [round(50 * number / 3) for number in range(4)]
    assert [shard.records for shard in shards] == [b - a for a, b in pairwise(cuts)]


def test_keys_that_inflate_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.dataset.provenance._MOST_KEYS_BYTES", 1000)
    (tmp_path / f"shard{KEYS_SUFFIX}").write_bytes(zlib.compress(json.dumps(["k" * 2000]).encode()))
    with pytest.raises(CorruptionError, match="expected the keys of a shard, got broken bytes"):
        read_keys(tmp_path / "shard")
