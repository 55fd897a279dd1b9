"""The servers' programs: two that Go compiles from the modules beside this file, and nginx.

A program is compiled once for all clones: it is kept in a cache outside of them, under the hash of what decides it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULES = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "services"
PACKAGES = {
    "versitygw": "github.com/versity/versitygw/cmd/versitygw",
    "aisnode": "github.com/NVIDIA/aistore/cmd/aisnode",
}


class UnavailableError(Exception):
    """A server that this machine does not have, and why, in one sentence."""


def required() -> bool:
    """Whether a server that is missing is a failure, as it is in CI, or with PENSTOCK_SERVICES=required."""
    return bool(os.environ.get("CI")) or os.environ.get("PENSTOCK_SERVICES") == "required"


def compiled(name: str) -> Path:
    """A program that was compiled before."""
    path = _path(name)
    if not path.exists():
        raise UnavailableError(f"{name} is not compiled yet: run `make services`, or python -m services build.")
    return path


def compile_program(name: str) -> Path:
    """A program, compiled if it was not before: minutes, once."""
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two clones at once: the second one finds it done
        if path.exists():
            return path
        if shutil.which("go") is None:
            raise UnavailableError(
                f"Go is needed to compile {name}, and was not found; install it to run the tests of it."
            )
        print(f"penstock: compiling {name} (some minutes, once)", file=sys.stderr, flush=True)
        partial = path.with_suffix(".partial")
        command = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(partial), PACKAGES[name]]
        environment = os.environ | {"CGO_ENABLED": "0"}
        done = subprocess.run(command, cwd=MODULES / name, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"{name} did not compile: {done.stderr.strip()[-2000:]}")
        partial.rename(path)
    return path


def _path(name: str) -> Path:
    folder = MODULES / name
    decides = (folder / "go.mod").read_bytes() + (folder / "go.sum").read_bytes()
    return CACHE / f"{name}-{hashlib.sha256(decides).hexdigest()[:16]}"


def nginx() -> Path:
    """nginx, as the system has it."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if found is None:
        raise UnavailableError("nginx was not found; install it (on Debian and Ubuntu: apt-get install nginx-light).")
    return Path(found)


def install_nginx() -> Path:
    """nginx, installed where that is ours to do: by root, on Debian and its like."""
    try:
        return nginx()
    except UnavailableError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise
    print("penstock: installing nginx-light", file=sys.stderr, flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "nginx-light"]
    for command in (install, ["apt-get", "update", "--quiet"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if command is install and done.returncode == 0:
            break
    return nginx()
