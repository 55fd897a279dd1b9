"""What every test shares: quiet peers, and one profile for Hypothesis."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

# A shell that runs the tests in the background has them ignore Ctrl-C, and the processes that they start too: tests of
# Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow reads these when it is first imported: no banner, no search for devices that are not there.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# CI must give the same answer twice; at a desk, each run looks somewhere new.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).resolve().parent.parent
