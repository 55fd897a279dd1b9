"""Watches the memory of a process and of all that it starts: `python -m benchmarks.memory PID`, a process of its own.

It says when it has begun, and the most bytes that were resident at one moment when its standard input ends. Pages that
several processes share count for each of them: the figure is an upper bound.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable

PAUSE = 0.005  # seconds between two looks


def peak_with_children(work: Callable[[], object]) -> int:
    """Do some work; returns the most memory, in bytes, that this process and its children had meanwhile."""
    watch = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.memory", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert watch.stdout is not None
    watch.stdout.readline()
    work()
    answer, _ = watch.communicate()
    return int(answer)


def main() -> None:
    import psutil

    watched, me = psutil.Process(int(sys.argv[1])), os.getpid()
    print("watching", flush=True)
    peak = 0
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        resident = 0
        for process in (watched, *watched.children(recursive=True)):
            try:
                resident += process.memory_info().rss if process.pid != me else 0
            except psutil.NoSuchProcess:
                continue
        peak = max(peak, resident)
    print(peak)


if __name__ == "__main__":
    main()
