"""Gives the site the pages that live at the repository's root, where people look for them first."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"format.md": "FORMAT.md", "changes.md": "CHANGELOG.md"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds each page with its links into docs/ made relative to the site."""
    root = Path(config.config_file_path).parent
    for page, source in PAGES.items():
        text = (root / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files
