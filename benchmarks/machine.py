"""The machine that the figures come from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
from pathlib import Path
from typing import TypedDict

from benchmarks.rows import ROOT

PACKAGES = (
    "penstock",
    "numpy",
    "tensorflow-cpu",
    "tensorflow",
    "tensorflow-datasets",
    "array-record",
    "bagz",
    "google-crc32c",
    "webdataset",
    "mosaicml-streaming",
    "litdata",
    "grain",
    "datasets",
    "torch",
    "nvidia-dali-cuda120",
)
PEERS = ROOT / ".venv-peers"  # the environment of those that share none with the tests'


class Machine(TypedDict):
    """What a reader needs to know in order to compare."""

    processor: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    packages: dict[str, str]
    load: float  # of the last minute, before the run: well above 0 means that somebody else was at work


def describe() -> Machine:
    """This machine."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": _packages(),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    """The model's name, with what tells its generation where the name does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    name = facts.get("model name", platform.machine())
    if "cpu family" in facts and "model" in facts:
        name += f" (family {facts['cpu family']}, model {facts['model']})"
    return name


def _packages() -> dict[str, str]:
    folders = [*sys.path, *map(str, PEERS.glob("lib/*/site-packages"))]
    versions = {}
    for name in PACKAGES:
        if found := next(iter(importlib.metadata.distributions(name=name, path=folders)), None):
            versions[name] = found.version
    return versions


def peak_memory() -> int:
    """The most memory this process ever had resident, in bytes, mapped files included."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    # Not ru_maxrss, which begins with what the parent process had when it forked.
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
