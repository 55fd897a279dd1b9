#!/usr/bin/env python3
"""Runs a cargo command so that a second clone compiles only our own crates: scripts/shared.py COMMAND ...

Each clone has a target folder of its own: cargo tells sources apart by their time and their path within the workspace,
so two clones that share one folder can be handed each other's code. What they share are copies of the compiled
dependencies, in a cache outside the clones, keyed by what decides them: the compiler and the lock file. A clone that
has nothing yet starts from the copy; a command that compiled more dependencies than the copy holds leaves a new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "cargo"
KEPT_DAYS = 30
# In this order a fingerprint is never copied before the files that it vouches for are complete.
PARTS = [".fingerprint", "build", "deps"]
OURS = ("penstock", "libpenstock", "_core", "lib_core")

# What is said to PyO3 about Python must be the same for clippy, for maturin and in every clone, or it is compiled anew.
PYO3_CONFIG = "implementation=CPython\nversion=3.10\ntarget_abi=CPython-abi3-3.10\nshared=true\n"


def profiles(target: Path) -> Iterator[Path]:
    """The folders of a target folder that hold compiled crates, relative to it: release, debug, TRIPLE/release ..."""
    for found in sorted([*target.glob("*/.fingerprint"), *target.glob("*/*/.fingerprint")]):
        yield found.parent.relative_to(target)


def dependencies(profile: Path) -> int:
    """How many compiled dependencies a folder holds."""
    return sum(not entry.name.startswith(OURS) for entry in (profile / ".fingerprint").iterdir())


def copy_dependencies(profile: Path, copy: Path) -> None:
    """Copies what is not ours and not a program."""

    def unwanted(folder: str, names: list[str]) -> list[str]:
        programs = Path(folder).name == "deps"
        return [name for name in names if name.startswith(OURS) or (programs and "." not in name)]

    for part in PARTS:
        if (profile / part).is_dir():
            shutil.copytree(profile / part, copy / part, ignore=unwanted, symlinks=True)


def copies(store: Path, profile: Path) -> list[tuple[int, Path]]:
    """The copies of a profile, the fullest last."""
    prefix = f"{'+'.join(profile.parts)}="
    return sorted((int(path.name.removeprefix(prefix)), path) for path in store.glob(f"{prefix}*"))


def start_from_copies(store: Path, target: Path) -> None:
    """Gives a clone what earlier ones have compiled, for each profile that it has nothing of."""
    for name in sorted({path.name.split("=")[0] for path in store.glob("*=*")}):
        profile = Path(*name.split("+"))
        if not (target / profile).exists():
            (target / profile).parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=target))
            copy_dependencies(copies(store, profile)[-1][1], fresh)
            fresh.chmod(0o755)
            fresh.rename(target / profile)


def leave_copies(store: Path, target: Path) -> None:
    """Leaves a copy of each profile that has more in it than the copies so far."""
    for profile in profiles(target):
        count, known = dependencies(target / profile), copies(store, profile)
        if known and known[-1][0] >= count:
            continue
        with (target / profile / ".cargo-lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # cargo is at work here: another time
            fresh = Path(tempfile.mkdtemp(dir=store))
            copy_dependencies(target / profile, fresh)
        try:
            fresh.rename(store / f"{'+'.join(profile.parts)}={count}")
        except OSError:  # another clone was quicker
            shutil.rmtree(fresh)
        for _, smaller in known:
            if time.time() - smaller.stat().st_mtime > 3600:  # nobody is still reading it
                shutil.rmtree(smaller, ignore_errors=True)


def main() -> int:
    """Runs the command between the two."""
    fuzzing = sys.argv[1:3] == ["cargo", "fuzz"]
    home = ROOT / "fuzz" if fuzzing else ROOT
    lock, target = home / "Cargo.lock", home / "target"
    compiler = subprocess.run(["rustc", "-vV"], capture_output=True, check=True).stdout
    settings = (ROOT / "Cargo.toml").read_bytes()  # its profiles decide how dependencies are compiled
    key = hashlib.sha256(compiler + settings + (lock.read_bytes() if lock.exists() else b"")).hexdigest()[:20]
    store = CACHE / key
    store.mkdir(parents=True, exist_ok=True)
    os.utime(store)
    for other in CACHE.iterdir():
        if time.time() - other.stat().st_mtime > KEPT_DAYS * 86400:
            shutil.rmtree(other, ignore_errors=True)

    config = CACHE.parent / "pyo3-abi3.txt"
    if not config.exists() or config.read_text() != PYO3_CONFIG:
        config.write_text(PYO3_CONFIG)
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(target),
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        "PYO3_CONFIG_FILE": str(config),
    }
    start_from_copies(store, target)
    status = subprocess.run(sys.argv[1:], env=environment, check=False).returncode
    if status == 0:
        leave_copies(store, target)
    return status


if __name__ == "__main__":
    sys.exit(main())
