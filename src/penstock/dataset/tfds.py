"""The directory of a dataset as TFDS knows it: where it lies, its dataset_info.json, its features.

<data_dir>/<name>/[<config>/]<version>/
  dataset_info.json  features.json  label.labels.txt
  name-train.tfrecord-00000-of-00003 ...
"""

from __future__ import annotations

import json
import os
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, CorruptionError, NotFoundError, SchemaError
from ..records.formats import FORMATS
from ..schema.schema import Schema
from ..storage.files import beside, checked_path, is_file, is_folder, join_path, list_folder, read_bytes, read_json
from ..storage.local import publish
from ..storage.store import is_url
from .manifest import Info, Manifest
from .tfds_features import FEATURES, Json, features_of, is_left_out, label_file, label_files, labels_of, schema_of

INFO = "dataset_info.json"
SCHEME = "tfds:"
TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.+-]+))?(:(?P<version>\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_FILE = re.compile(r"[\w.+-]+")
_MOST_BYTES = 1 << 28  # of a file of metadata


# Where datasets lie
def is_tfds_name(path: object) -> bool:
    """Whether it is a name as in "tfds:mnist", which stands for a directory."""
    return isinstance(path, str) and path.startswith(SCHEME)


def data_directory(given: str | os.PathLike[str] | None = None) -> str:
    """Where TFDS keeps its datasets, which may be a URL: as given, or $TFDS_DATA_DIR, or in the home directory."""
    told = given or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return os.path.expanduser(checked_path(told, "data_dir" if given else "TFDS_DATA_DIR"))


def parse_name(text: str) -> tuple[str, str | None, str | None]:
    """Name, config and version of "tfds:name/config:1.0.0"."""
    match = _NAME.fullmatch(text.removeprefix(SCHEME))
    if match is None:
        raise ArgumentError(f"expected a name such as tfds:mnist or tfds:mnist:3.0.1, got {text!r}")
    return match["name"], match["config"], match["version"]


def find_dataset(text: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """The directory of "tfds:name": of its default config, in its highest version, unless it says which."""
    name, config, version = parse_name(text)
    folder = join_path(data_directory(data_dir), name)
    if config is None and not _versions(folder):
        config = _default_config(folder)
    if config is not None:
        folder = join_path(folder, config)
    found = _versions(folder)
    if version is None and found:
        version = max(found, key=lambda text: tuple(map(int, text.split("."))))
    if version not in found:
        known = f"the versions {', '.join(found)}" if found else "nothing"
        raise NotFoundError(f"expected {text} as TFDS prepares it, got {known} - at {folder}. Give data_dir=")
    return join_path(folder, str(version))


def _folders(folder: str) -> list[str]:
    return [entry.name for entry in list_folder(folder).entries() if entry.is_dir()] if is_folder(folder) else []


def _versions(folder: str) -> list[str]:
    return [name for name in _folders(folder) if _VERSION.fullmatch(name) and is_file(join_path(folder, name, INFO))]


def _default_config(folder: str) -> str | None:
    path = join_path(folder, ".config", "metadata.json")
    if is_file(path):
        said = _read_json(path).get("default_config_name")
        return said if isinstance(said, str) and _FILE.fullmatch(said) else None
    configs = [name for name in _folders(folder) if _versions(join_path(folder, name))]
    if len(configs) > 1:
        hint = f"Say which: tfds:{os.path.basename(folder)}/{configs[0]}"
        raise NotFoundError(f"expected one config, got {', '.join(configs)} - at {folder}. {hint}")
    return configs[0] if configs else None


# What a directory says of itself
@dataclass(frozen=True)
class Prepared:
    """A dataset that TFDS can open: its shards by split, each with its number of records.

    unread  fields that we can't read, each with the reason
    said    dataset_info.json, as it is
    format  that of the shards
    """

    name: str
    schema: Schema
    splits: dict[str, list[tuple[str, int]]]
    unread: dict[str, str]
    said: Json
    format: str

    @property
    def info(self) -> Info:
        """What it says of itself to people."""
        texts: dict[str, Any] = {
            part: str(self.said[part]) for part in ("version", "description", "citation") if part in self.said
        }
        try:
            named = tuple(key["featureKey"] for key in self.said["supervisedKeys"]["tuple"]["items"])
        except (KeyError, TypeError):
            named = ()
        known = len(named) == 2 and all(isinstance(name, str) and name in self.schema for name in named)
        return Info(name=self.name, supervised=named if known else None, **texts)


def read_prepared(directory: Path | str, format: str | None = None) -> Prepared:
    """What a directory, or a URL, holds, by its metadata alone. `format` chooses where shards are in more than one."""
    info = _read_json(beside(directory, INFO))
    try:
        chosen = _format(info, format, directory)
        name = _checked(info["name"])
        splits = {_checked(split["name"]): _shards(name, split, chosen) for split in info.get("splits", ())}
        if not splits:
            raise ValueError("no splits")
        if len(splits) < len(info["splits"]):
            raise ValueError("a split twice")
    except (ArgumentError, SchemaError):
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"expected what TFDS says of a dataset, got something else ({type(error).__name__}: {error})"
        raise CorruptionError(problem, str(beside(directory, INFO))) from None
    _, schema, unread = read_features(directory)
    return Prepared(name, schema, splits, unread, info, chosen)


def read_features(directory: Path | str) -> tuple[Json, Schema, dict[str, str]]:
    """The features of a directory: as they are, as a schema, and those that can't be read, each with the reason."""
    features = _read_json(beside(directory, FEATURES))
    try:
        schema, unread = schema_of(features, lambda path: _class_names(beside(directory, label_file(path))))
        if not schema and not unread:
            raise ValueError("no features")
    except CorruptionError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        got = f"something else ({type(error).__name__}: {error})"
        raise CorruptionError(f"expected TFDS features, got {got}", str(beside(directory, FEATURES))) from None
    return features, schema, unread


def _format(info: Json, wanted: str | None, directory: Path | str) -> str:
    formats = [str(info.get("fileFormat") or "tfrecord"), *map(str, info.get("alternativeFileFormats", ()))]
    known = [format for format in formats if format in FORMATS]
    if wanted is None and known:
        return known[0]
    if wanted not in known:
        expected = wanted or " or ".join(FORMATS)
        raise ArgumentError(f"expected shards in the format {expected}, got {', '.join(formats)}", str(directory))
    return wanted


def _shards(name: str, split: Json, format: str) -> list[tuple[str, int]]:
    """The files of a split, named by its template, with their numbers of records."""
    lengths = [int(length) for length in split["shardLengths"]]
    if any(not 0 <= length < 1 << 63 for length in lengths):
        raise ValueError(f"shards of {reprlib.repr(lengths)} records")
    if not lengths:
        raise ValueError(f"the split {split['name']} without shards")
    count = len(lengths)
    digits = max(5, len(str(count)))
    template = str(split.get("filepathTemplate") or TEMPLATE)
    for word, text in (("DATASET", name), ("SPLIT", split["name"]), ("FILEFORMAT", format)):
        template = template.replace(f"{{{word}}}", text)
    template = template.replace("{SHARD_X_OF_Y}", "{SHARD_INDEX}-of-{NUM_SHARDS}")
    template = template.replace("{NUM_SHARDS}", f"{count:0{digits}}")
    files = [_checked(template.replace("{SHARD_INDEX}", f"{number:0{digits}}")) for number in range(count)]
    return list(zip(files, lengths, strict=True))


def _checked(text: object) -> str:
    """A name that stays within the directory."""
    if not isinstance(text, str) or len(text) > 255 or not _FILE.fullmatch(text) or text in (".", ".."):
        raise ValueError(f"the name {reprlib.repr(text)}")
    return text


def _class_names(path: Path | str) -> tuple[str, ...] | None:
    """The names of a label's classes; None where there is no file of them."""
    try:
        names = tuple(line.strip() for line in read_bytes(path).decode().split("\n") if line.strip())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _wrong_classes(f"bytes that are no text ({error})", path) from None
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _wrong_classes(f"{twice[:100]!r} twice", path)
    return names


def _wrong_classes(got: str, path: Path | str) -> CorruptionError:
    hint = "Restore the file from a copy, or delete it to load labels as numbers"
    error = CorruptionError(f"expected the names of a label's classes, one per line, got {got} - at {path}. {hint}")
    error.path = str(path)
    return error


def _read_json(path: Path | str) -> Json:
    data = read_json(path, "metadata of TFDS", _MOST_BYTES)
    if not isinstance(data, dict):
        raise CorruptionError(f"expected metadata of TFDS, got {type(data).__name__}", str(path))
    return data


FIRST_VERSION = "1.0.0"  # where neither the path nor anybody says one


def dataset_directory(path: str | os.PathLike[str], info: Info | None) -> Path | str:
    """Where a dataset is built: at a path or a URL, or, for a name as in "tfds:name", where TFDS looks for it."""
    if not is_tfds_name(path):
        return str(path) if is_url(path) else Path(path)
    name, config, version = parse_name(str(path))
    if config is not None:
        raise ArgumentError(f"expected a name without a config, got {path!r}", "build")
    folder = join_path(data_directory(), name, version or (info and info.version) or FIRST_VERSION)
    return folder if is_url(folder) else Path(folder)


def write_metadata(directory: Path, manifest: Manifest, stale: Iterable[str] = ()) -> None:
    """Let TFDS open the dataset, if it can. dataset_info.json comes last.

    stale  files of an earlier dataset in the directory, which are removed
    """
    files = metadata_files(manifest)
    if INFO in files:
        remove_metadata(directory)
    for name in set(stale) - set(files):
        (directory / name).unlink(missing_ok=True)
    for name, data in files.items():
        publish(directory / name, data, sync=name == INFO)


def metadata_files(manifest: Manifest) -> dict[str, bytes]:
    """The files that TFDS reads, with their content; dataset_info.json comes last. None if TFDS can't read a field."""
    if why_closed(manifest):
        return {}
    files = {name: text.encode() for name, text in label_files(manifest.schema).items() if text is not None}
    features, notes = _features(manifest), tfds_notes(manifest)
    return {**files, FEATURES: _json(features), INFO: _json(_dataset_info(manifest, notes))}


def remove_metadata(directory: Path) -> None:
    """Close the dataset to TFDS, while its shards are replaced."""
    (directory / INFO).unlink(missing_ok=True)


def why_closed(manifest: Manifest) -> str:
    """Why TFDS can't open a dataset at all; nothing if it can."""
    if not _formats(manifest):
        return "TFDS reads no compressed TFRecord files"
    if manifest.schema.sequence or all(map(is_left_out, manifest.schema.leaves())):
        return "TFDS can read none of its fields"
    return ""


def _features(manifest: Manifest) -> Json:
    """Those of a builder, if they say the same as the schema; else what the schema says."""
    told = _told_features(manifest)
    return features_of(manifest.schema)[0] if told is None else told


def _told_features(manifest: Manifest) -> Json | None:
    told: Json | None = (manifest.info.tfds or {}).get("features")
    if told is not None:
        classes = {path: field.classes for path, field in labels_of(manifest.schema)}
        if schema_of(told, classes.get) == (manifest.schema, {}):
            return told
    return None


def tfds_notes(manifest: Manifest) -> dict[str, str]:
    """Fields that TFDS can't read, or not as Penstock does, each with the reason."""
    notes = {} if _told_features(manifest) is not None else features_of(manifest.schema)[1]
    images = {
        name: f"has {' and '.join(formats)} files, on which TFDS fails: it takes them for animations. Store PNG or JPEG"
        for name, formats in manifest.found.get("images", {}).items()
    }
    return {**images, **notes}


def _dataset_info(manifest: Manifest, notes: dict[str, str]) -> Json:
    info = manifest.info
    first, *others = _formats(manifest)
    splits = [
        {
            "name": split,
            "shardLengths": [str(shard.records) for shard in shards],
            "numBytes": str(sum(shard.bytes for shard in shards)),
            "filepathTemplate": TEMPLATE,
        }
        for split, shards in manifest.formats[first].items()
    ]
    said: Json = {
        **((info.tfds or {}).get("info") or {}),
        "name": manifest.name,
        "version": info.version or FIRST_VERSION,
        "description": "\n\n".join(filter(None, [info.description, _said(notes)])),
        "citation": info.citation,
        "fileFormat": first,
        "alternativeFileFormats": others,
        "splits": splits,
    }
    kept = {leaf.name.split("/")[0] for leaf in manifest.schema.leaves() if not is_left_out(leaf)}
    if info.supervised is not None and kept.issuperset(name.split("/")[0] for name in info.supervised):
        said["supervisedKeys"] = {"tuple": {"items": [{"featureKey": name} for name in info.supervised]}}
    if manifest.options.get("order") == "source":
        said["disableShuffling"] = True
    return {key: value for key, value in said.items() if value not in ("", [])}


def _formats(manifest: Manifest) -> list[str]:
    """The formats that TFDS can read, TFRecord first, as it wants it; whole files that are compressed it can't."""
    known = [
        name for name in manifest.formats if name != "tfrecord" or not manifest.format_options(name).get("compression")
    ]
    return sorted(known, key=lambda name: name != "tfrecord")


def _said(notes: dict[str, str]) -> str:
    said = "; ".join(f"{name}: {note}" for name, note in notes.items())
    return f"Fields that penstock.load gives otherwise. {said}." if said else ""


def _json(data: Json) -> bytes:
    return json.dumps(data, indent=1).encode()
