"""The file in which TFRecorder keeps what a run was asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from configparser import ConfigParser
from io import StringIO
from pathlib import Path
from typing import Any

from ...storage import publish

CONFIG = "tfrecord_files_config.txt"
DEFAULTS = {"examples_tfrecord_file_max_size_in_bytes": 1e6, "examples_log_in_csv_file": True}


def write_config(path: Path, said: Mapping[str, Any], options: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """The options of the example class first, then the factory's own, then how many examples came out."""
    how = DEFAULTS | dict(options)
    told = {name.replace("examples_", ""): value for name, value in options.items() if name not in DEFAULTS}
    told |= {
        "class_name": said["class"].__name__,
        "list_filepath": said["filepath"],
        "train_eval_test_ratio": said["ratio"],
        "tfrecord_file_max_size_in_mb": f"{how['examples_tfrecord_file_max_size_in_bytes'] / 1e6:.2e}",
        "log_in_csv_file": how["examples_log_in_csv_file"],
        **{f"{name}_count": count for name, count in counts.items()},
    }
    parser = ConfigParser(interpolation=None)
    parser["examples"] = {name: _written(name, value) for name, value in told.items()}
    text = StringIO()
    parser.write(text)
    publish(path, text.getvalue().encode())


def _written(name: str, value: Any) -> str:
    if "path" in name and isinstance(value, (str, os.PathLike)):
        return os.path.abspath(value)
    return json.dumps(list(value)) if isinstance(value, (list, tuple)) else str(value)
