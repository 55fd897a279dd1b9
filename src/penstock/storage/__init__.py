"""Where files are, here or in an object store: patterns that name many, files that appear whole or not at all."""

from __future__ import annotations

from .documents import beside, read_bytes, read_json, read_json_object
from .local import FileStamp, file_stamp, publish, sync_folder, write_all
from .patterns import (
    MOST_FILES,
    SPLIT,
    PathLike,
    Paths,
    expand,
    is_glob,
    is_numbered,
    named_by,
    numbered,
    numbered_files,
    path_list,
    split_patterns,
)
from .store import SCHEMES, STORE_VARIABLES, Entry, Store, is_url, join_url, open_store, split_url, url_name

__all__ = [
    "MOST_FILES",
    "SCHEMES",
    "SPLIT",
    "STORE_VARIABLES",
    "Entry",
    "FileStamp",
    "PathLike",
    "Paths",
    "Store",
    "beside",
    "expand",
    "file_stamp",
    "is_glob",
    "is_numbered",
    "is_url",
    "join_url",
    "named_by",
    "numbered",
    "numbered_files",
    "open_store",
    "path_list",
    "publish",
    "read_bytes",
    "read_json",
    "read_json_object",
    "split_patterns",
    "split_url",
    "sync_folder",
    "url_name",
    "write_all",
]
