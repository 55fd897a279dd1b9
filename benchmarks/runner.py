"""Runs rows: one process for each contender, their repetitions in turns, never two at once."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.data import SIZES, Data
from benchmarks.report import Comparison, Measured, RowResult
from benchmarks.rows import FEWEST, OURS, PATIENCE, ROOT, Row
from benchmarks.verdict import best, ratio, spread, verdict
from benchmarks.worker import Assignment

DEADLINE = 900.0  # seconds that one command may take
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How to measure."""

    size: str
    cache: Path
    repetitions: int = 7
    seconds: float = 0.5  # at least so long is each repetition
    threads: int = 2

    def rounds(self, row: Row) -> int:
        """How many repetitions a row has."""
        return min(self.repetitions, row.repetitions or self.repetitions)


class NotMeasuredError(Exception):
    """Why a contender has no figure."""


class WorkerProcess:
    """The process of one contender."""

    def __init__(self, plan: Plan, row: Row, contender: str, scratch: Path) -> None:
        assignment: Assignment = {
            "row": row.name,
            "contender": contender,
            "size": plan.size,
            "cache": str(plan.cache),
            "scratch": str(scratch),
            "threads": plan.threads,
        }
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed at exit
        self.process = subprocess.Popen(
            [interpreter(row.contenders[contender].role), "-m", "benchmarks.worker", json.dumps(assignment)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment(plan.threads),
            start_new_session=True,  # so that a signal reaches the processes that it starts, too
        )

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer. Between commands the process stands still.

        Otherwise a peer that reads ahead (tf.data's prefetch) would go on while another one is measured.
        """
        self._signal("SIGCONT")
        try:
            return self._ask(command, **arguments)
        finally:
            self._signal("SIGSTOP")

    def _signal(self, name: str) -> None:
        if hasattr(signal, name) and hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, getattr(signal, name))

    def _ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        watchdog = threading.Timer(DEADLINE, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise NotMeasuredError(f"its process ended with {self.process.wait()}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise NotMeasuredError(answer["error"])
        return answer

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signal("SIGCONT")
        if kind is not None:
            self.process.kill()
        self.process.communicate()
        self._signal("SIGKILL")  # whatever it has left behind
        self.errors.close()


def interpreter(role: str) -> str:
    """The Python of an environment: this one for the tests', which the benchmark itself runs in."""
    if role == "test":
        return sys.executable
    path = ROOT / f".venv-{role}" / "bin" / "python"
    if not path.exists():
        raise NotMeasuredError(f"its environment is not there: `scripts/venv {role}` makes it")
    return str(path)


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker: every library that asks is told the same number of threads."""
    names = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    return {
        **os.environ,
        **dict.fromkeys(names, str(threads)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }


def measure(row: Row, plan: Plan, progress: Progress) -> RowResult:
    """Measure one row. A contender that can not run gets the reason in place of figures."""
    plan.cache.mkdir(parents=True, exist_ok=True)
    figures: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=plan.cache) as scratch, ExitStack() as stack:
        workers: dict[str, WorkerProcess] = {}

        def open_worker(name: str) -> WorkerProcess:
            folder = Path(scratch) / str(list(row.contenders).index(name))
            folder.mkdir(exist_ok=True)
            return WorkerProcess(plan, row, name, folder)

        for name in row.contenders:
            progress(f"{row.name}: {name} starts")
            try:
                _make_needs(row, name, plan, open_worker)
                if not row.fresh:
                    workers[name] = stack.enter_context(open_worker(name))
                    workers[name].ask("start")
                figures[name] = []
            except NotMeasuredError as error:
                reasons[name] = str(error)
        taken = dict.fromkeys(figures, 0.0)
        for repetition in range(plan.rounds(row)):
            for name in list(figures):
                progress(f"{row.name}: {name}, {repetition + 1} of {plan.rounds(row)}")
                if repetition >= FEWEST and taken[name] > PATIENCE:
                    continue
                began = time.monotonic()
                try:
                    if row.fresh:
                        with open_worker(name) as worker:
                            worker.ask("start")
                            answer = worker.ask("run")
                    else:
                        answer = workers[name].ask("run", seconds=plan.seconds)
                    figures[name].append(answer["figure"])
                except NotMeasuredError as error:
                    reasons[name] = str(error)
                    del figures[name]
                taken[name] += time.monotonic() - began
    return result(row, figures, reasons)


def _make_needs(row: Row, name: str, plan: Plan, open_worker: Callable[[str], WorkerProcess]) -> None:
    """Make the files that a contender needs, in a process of their own."""
    data = Data(SIZES[plan.size], plan.cache)
    if all(data.path(artifact).exists() for artifact in row.contenders[name].needs):
        return
    with open_worker(name) as worker:
        worker.ask("make")


def result(row: Row, figures: dict[str, list[float]], reasons: dict[str, str]) -> RowResult:
    """The row's result: medians, and ours compared with every other contender and with the limit."""
    contenders: dict[str, Measured] = {}
    for name in row.contenders:
        if name in figures:
            values = figures[name]
            contenders[name] = {"figures": values, "median": statistics.median(values), "spread": spread(values)}
        else:
            contenders[name] = {"not_measured": reasons[name]}
    return {
        "name": row.name,
        "title": row.title,
        "unit": row.unit,
        "repetitions": max(map(len, figures.values()), default=0),
        "contenders": contenders,
        "comparisons": compare(row, figures, reasons) if OURS in row.contenders else [],
    }


def compare(row: Row, figures: dict[str, list[float]], reasons: dict[str, str]) -> list[Comparison]:
    """Ours against each other contender in turn, and against the limit if the row has one."""
    comparisons: list[Comparison] = []
    fastest = best({name: figures[name] for name in row.peers if name in figures}, less_is_better=row.fresh)
    for peer in row.others:
        target = row.target(peer, fastest or next(iter(row.peers), None))
        must, aim = (target.must, target.aim) if target else (None, None)
        missing = next((name for name in (OURS, peer) if name not in figures), None)
        if missing:
            comparisons.append(_unknown(peer, must, aim, missing, reasons[missing]))
            continue
        times, width = ratio(figures[OURS], figures[peer], less_is_better=row.fresh)
        comparisons.append(_known(peer, must, aim, times, width, verdict(times, width, must, aim)))
    if row.limit:
        must, aim = row.limit.must, row.limit.aim
        if OURS in figures:
            ours = statistics.median(figures[OURS])
            width = spread(figures[OURS])
            reached = verdict(must / ours, width, 1, must / aim if aim else None)
            comparisons.append(_known(None, must, aim, None, width, reached))
        else:
            comparisons.append(_unknown(None, must, aim, OURS, reasons[OURS]))
    return comparisons


def _known(
    peer: str | None, must: float | None, aim: float | None, times: float | None, width: float, reached: str
) -> Comparison:
    return {"peer": peer, "must": must, "aim": aim, "ratio": times, "spread": width, "verdict": reached}


def _unknown(peer: str | None, must: float | None, aim: float | None, who: str, reason: str) -> Comparison:
    text = f"not measured: {reason}" if who == peer else f"ours not measured: {reason}"
    return {"peer": peer, "must": must, "aim": aim, "ratio": None, "spread": None, "verdict": text}
