"""A scenario: rounds within a time limit, counted outcomes, and failures with the seed that repeats them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHILD_SECONDS = 120.0  # after which a process counts as hung
MOST_FAILURES = 5  # then the scenario ends


class UnavailableError(Exception):
    """The scenario cannot run on this machine; the message gives the reason."""


@dataclass
class Tally:
    """Outcomes of a scenario's rounds."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    skipped: str = ""


@dataclass(frozen=True)
class Round:
    """One round: its random numbers, an empty folder, and the tally it counts in."""

    rng: random.Random
    folder: Path
    tally: Tally

    def count(self, outcome: str, times: int = 1) -> None:
        """Count an outcome that is allowed."""
        self.tally.outcomes[outcome] += times

    def expect(self, holds: bool, message: str) -> None:
        """Fail the round unless `holds`."""
        if not holds:
            raise AssertionError(message)

    def add(self, result: dict[str, Any]) -> None:
        """Count the outcomes of a child process, and fail the round if it found failures."""
        for outcome, times in result["outcomes"].items():
            self.count(outcome, times)
        self.expect(not result["failures"], "; ".join(result["failures"][:5]))


def repeat(scenario: Callable[[Round], None], seconds: float, seed: int, folder: Path) -> Tally:
    """Run rounds of a scenario until the time ends; the first round always runs."""
    tally, start, number = Tally(), time.monotonic(), 0
    while not number or time.monotonic() - start < seconds:
        round_folder = Path(tempfile.mkdtemp(dir=folder))
        try:
            scenario(Round(random.Random(seed + number), round_folder, tally))
        except UnavailableError as reason:
            tally.skipped = str(reason)
            break
        except Exception as error:  # noqa: BLE001 - whatever a round raises is a failure of that round
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            tally.failures.append(f"--seed {seed + number}: {kind}{error}")
            if len(tally.failures) == MOST_FAILURES:
                break
        finally:
            shutil.rmtree(round_folder, ignore_errors=True)
        number += 1
    tally.outcomes["rounds"] = number
    tally.seconds = time.monotonic() - start
    return tally


class Child:
    """A function of `chaos.children` in a process group of its own, so that a kill takes its workers along."""

    def __init__(self, function: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.children", function, json.dumps(arguments, default=str)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the process and its workers, as the kernel does when memory runs out."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=CHILD_SECONDS)

    def wait(self) -> int:
        """Wait for the end and return the exit code; a process that hangs is killed and raises TimeoutExpired."""
        try:
            self._output, self._errors = self._process.communicate(timeout=CHILD_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self._process.returncode

    def result(self) -> Any:
        """Wait for the end and return the function's value; any failure raises AssertionError."""
        status = self.wait()
        if status:
            raise AssertionError(f"exit code {status}: {self._errors.strip()[-2000:]}")
        return json.loads(self._output.strip().splitlines()[-1])

    @property
    def errors(self) -> str:
        """Standard error, after `wait`."""
        return self._errors.strip()[-2000:]


def run_child(function: str, *arguments: object) -> Any:
    """Run a function of `chaos.children` and return its value."""
    return Child(function, *arguments).result()
