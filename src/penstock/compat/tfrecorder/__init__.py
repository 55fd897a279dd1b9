"""TFRecorder's door: `from penstock.compat.tfrecorder import Example, tfrecordable, factory as tf_factory`.

What was wrong there is right here: docs/coming-from/tfrecorder.md lists it.
"""

from __future__ import annotations

from ...schema.example_class import IgnoreExample as IgnoreExampleException
from . import factory
from .example import Example, tfrecordable

__all__ = ["Example", "IgnoreExampleException", "factory", "tfrecordable"]
