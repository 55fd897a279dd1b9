#!/usr/bin/env python3
"""Builds the wheel of this clone's sources and prints its path: scripts/wheel.py [OPTION OF maturin build ...].

Wheels are kept in a cache outside the clone under a hash of all that they are made from: a second clone of the same
sources compiles nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "wheels"
SOURCES = ["Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "THIRD-PARTY-LICENSES", "pyproject.toml", "rust", "src"]
KEPT_DAYS = 30


def fingerprint() -> str:
    """A hash of the options, of the compiler and of every source file, by name and content."""
    digest = hashlib.sha256(" ".join(sys.argv[1:]).encode())
    digest.update(subprocess.run(["rustc", "-vV"], capture_output=True, check=True).stdout)
    for source in SOURCES:
        path = ROOT / source
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in {".so", ".pyc"}:
                content = file.read_bytes()
                digest.update(f"{file.relative_to(ROOT).as_posix()}\0{len(content)}\0".encode())
                digest.update(content)
    return digest.hexdigest()[:20]


def forget_old_wheels() -> None:
    """Removes what no clone has asked for in a month."""
    for folder in CACHE.iterdir():
        if time.time() - folder.stat().st_mtime > KEPT_DAYS * 86400:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Finds or builds the wheel."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / fingerprint()
    if not folder.exists():
        print("penstock: compiling the native module (a minute or two the first time)", file=sys.stderr)
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        maturin = ROOT / ".venv-demo" / "bin" / "maturin"
        command = [
            sys.executable,
            ROOT / "scripts" / "shared.py",
            maturin,
            "build",
            "--release",
            "--out",
            fresh,
            *sys.argv[1:],
        ]
        built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if built.returncode:
            shutil.rmtree(fresh)
            print(built.stdout.decode(errors="replace"), file=sys.stderr)
            return 1
        try:
            fresh.rename(folder)
        except OSError:  # another clone was quicker
            shutil.rmtree(fresh)
    os.utime(folder)
    forget_old_wheels()
    print(next(folder.glob("*.whl")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
