"""Workers are forks: what a library has begun in this process, such as TensorFlow's threads, is not there in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock as ps

pytest.importorskip("tensorflow")

SCRIPT = """
import os, sys, warnings
import penstock as ps
import tensorflow as tf

def product(n):
    one = tf.random.stateless_uniform((700, 700), seed=(n, 0))    # large enough for TensorFlow's threads
    return (one @ one)[0].numpy()

class Clip(ps.Example):
    n: int
    row: ps.Array["float32", 700]
    process: int

    def load(self):
        self.row, self.process = product(self.n), os.getpid()

class Rows:
    def __len__(self):
        return 12

    def __getitem__(self, n):
        return {"n": n, "row": product(n), "process": os.getpid()}

kind, path, *before = sys.argv[1:]
if before:
    product(0)
source = Rows() if kind == "rows" else [Clip(n=n) for n in range(12)]
with warnings.catch_warnings(record=True) as told:
    built = ps.build(source, path, shards=4)
print(len({example["process"] for example in built["train"]}), os.getpid() in {e["process"] for e in built["train"]})
print(*(str(each.message) for each in told if each.category is UserWarning))
"""


def run(tmp_path: Path, *words: str) -> list[str]:
    call = [sys.executable, "-c", SCRIPT, words[0], str(tmp_path / "data"), *words[1:]]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["examples", "rows"])
def test_code_that_uses_tensorflow_runs_in_workers(tmp_path: Path, kind: str) -> None:
    """Here no example is loaded before they are: not even for the sample that shows what examples hold."""
    processes, warned = run(tmp_path, kind)
    assert processes.endswith("False")
    assert int(processes.split()[0]) > 1 or os.cpu_count() == 1
    assert not warned


@pytest.mark.parametrize("kind", ["examples", "rows"])
def test_where_tensorflow_has_run_one_process_builds(tmp_path: Path, kind: str) -> None:
    processes, warned = run(tmp_path, kind, "ran before")
    assert processes == "1 True"
    assert warned.startswith("TensorFlow has run in this process, and code that uses it waits forever in a fork")
    assert "say workers=" in warned


class Broken(ps.Example):
    """Its error cannot be sent from one process to another."""

    n: int

    def load(self) -> None:
        class Odd(Exception):  # noqa: N818
            def __init__(self, one: int, two: int) -> None:
                super().__init__(f"{one} and {two}")

        if self.n == 3:
            raise Odd(1, 2)
        if self.n % 2:
            raise ps.IgnoreExample("odd")
        if self.n == 8:
            raise FileNotFoundError(2, "No such file", "eight.npy")


def test_errors_of_a_sample_come_home(tmp_path: Path) -> None:
    numbers = [Broken(n=n) for n in range(10)]
    with pytest.raises(ps.ExampleError, match=r"Odd: 1 and 2 - in example '0' of train"):
        ps.build([Broken(n=3)], tmp_path / "one", workers=2)
    with pytest.raises(ps.ExampleError, match=r"FileNotFoundError: .*'eight.npy' - in example") as found:
        ps.build([Broken(n=8)], tmp_path / "eight", workers=2)
    cause = found.value.__cause__
    assert isinstance(cause, FileNotFoundError)
    assert "test_fork_safety.py" in str(cause.__cause__)  # where it was raised
    built = ps.build(numbers, tmp_path / "some", on_error="skip", workers=2)
    assert sorted(example["n"] for example in built["train"]) == [0, 2, 4, 6]
    assert (built.ignored, built.bad) == (4, 2)


def test_a_sample_goes_on_until_it_has_seen_enough(tmp_path: Path) -> None:
    """The first hundreds asked to be left out: what the others hold is found out all the same."""

    class Late(ps.Example):
        n: int
        x: ps.Array[np.float32, None]

        def load(self) -> None:
            if self.n < 990:
                raise ps.IgnoreExample
            self.x = np.ones(self.n - 988, np.float32)

    built = ps.build([Late(n=n) for n in range(1000)], tmp_path / "data", workers=2)
    assert len(built["train"]) == 10
