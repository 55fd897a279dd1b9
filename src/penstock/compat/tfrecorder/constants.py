"""The names of TFRecorder's folders and files."""

from __future__ import annotations

from .folder import CONFIG, LOG

TRAIN_DIRECTORY_NAME, EVAL_DIRECTORY_NAME, TEST_DIRECTORY_NAME = "train", "eval", "test"
EXAMPLES_LIST_FILENAME = LOG
EXAMPLES_TFRECORD_FILES_CONFIG_FILENAME = CONFIG
