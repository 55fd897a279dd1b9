"""The bytes of builds: a change that does not change the format does not change them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.golden_builds import BUILDS, GOLDEN, build_hashes


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_writes_the_bytes_that_were_recorded(name: str, tmp_path: Path) -> None:
    """A new format is recorded by `python -m tests.support.golden_builds`, and named in CHANGELOG.md."""
    assert build_hashes(name, tmp_path) == json.loads(GOLDEN.read_text())[name]
