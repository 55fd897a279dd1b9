"""The process in which one contender of one row lives: it reads a command a line and answers each with a line of JSON.

make   make the files that the contender needs
start  import, build, check the answer and warm up
run    do the job until some time has passed; answers the figure
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

from benchmarks import suite
from benchmarks.data import SIZES, Data
from benchmarks.rows import Contender, Job, Row, Setting

# A process that stood still while others were measured has one run to get going that does not count: its pipelines
# have to fill. A job that takes as many seconds as this fills them on the way.
LONG = 1.0


class Assignment(TypedDict):
    """What a worker is told at its start, as JSON in its only argument."""

    row: str
    contender: str
    size: str
    cache: str
    scratch: str
    threads: int


class Worker:
    """One contender, answering commands."""

    def __init__(self, assignment: Assignment) -> None:
        self.row: Row = suite.row(assignment["row"])
        self.contender: Contender = self.row.contenders[assignment["contender"]]
        data = Data(SIZES[assignment["size"]], Path(assignment["cache"]))
        self.setting = Setting(data, assignment["threads"], Path(assignment["scratch"]))
        self.job: Job | None = None
        self.seconds = 0.0  # that the job took before it was measured

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command."""
        verb = command["command"]
        if verb == "make":
            for artifact in self.contender.needs:
                self.setting.data.make(artifact)
        elif verb == "start":
            self.job = self.contender.build(self.setting)
            if not self.row.fresh:
                self.job.check()
                self.seconds = timed(self.job)[1]
                gc.collect()
                gc.freeze()  # what the job keeps is not walked again by the collector
        elif verb == "run":
            assert self.job is not None
            if self.row.fresh:
                return {"figure": timed(self.job)[0]}
            if self.seconds < LONG:
                timed(self.job)
            return {"figure": rate(self.job, command["seconds"])}
        return {}


def timed(job: Job) -> tuple[float, float]:
    """Do the job once: the units, and the seconds that it took."""
    begin = time.perf_counter()
    units = job.run()
    seconds = time.perf_counter() - begin
    job.after()
    return units, seconds


def rate(job: Job, seconds: float) -> float:
    """Units a second, over as many runs as it takes to be busy for that long."""
    units = busy = 0.0
    while busy < seconds:
        more, took = timed(job)
        units += more
        busy += took
    return units / busy


def hold_to_cores(count: int) -> None:
    """Give this process a number of cores, where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    assignment: Assignment = json.loads(sys.argv[1])
    hold_to_cores(assignment["threads"])
    worker = Worker(assignment)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except ModuleNotFoundError as error:
            answer = {"error": f"{error.name} is not installed"}
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
