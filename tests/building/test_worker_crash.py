"""Examples that end their process, and code that leaves the working directory: the right example is named."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock as ps


class Ends(ps.Example):
    """Number 17 ends its process."""

    n: int

    how = "sys.exit"

    def load(self) -> None:
        if self.n == 17:
            if self.how == "sys.exit":
                sys.exit("no more")
            if self.how == "os._exit":
                os._exit(3)
            faulthandler.disable()  # pytest's handler would print every stack
            os.kill(os.getpid(), signal.SIGSEGV)


class Several(Ends):
    """The same, of examples that become many."""

    def split(self) -> Any:
        yield self


EXAMPLES = {kind: [kind(n=n) for n in range(200)] for kind in (Ends, Several)}


@pytest.mark.parametrize("kind", [Ends, Several])
@pytest.mark.parametrize("stage", ["sample", "full", "write"])
@pytest.mark.parametrize(
    ("how", "got"),
    [("sys.exit", "SystemExit: no more"), ("os._exit", "ended with code 3"), ("crash", "ended by SIGSEGV")],
)
def test_the_example_that_ends_its_process_is_named(
    tmp_path: Path, kind: type[Ends], stage: str, how: str, got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "how", how)
    schema: Any = {"sample": None, "full": "full", "write": kind.schema()}[stage]
    with pytest.raises(ps.ExampleError, match=rf"{got} - in example '17' of train, from example 17$") as caught:
        ps.build(EXAMPLES[kind], tmp_path / "toy", workers=2, schema=schema)
    assert (caught.value.key, caught.value.split) == ("17", "train")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("on_error", ["skip", "quarantine"])
@pytest.mark.parametrize("workers", [1, 2])
def test_sys_exit_is_the_error_of_one_example(tmp_path: Path, on_error: str, workers: int) -> None:
    built = ps.build(EXAMPLES[Ends], tmp_path / "toy", workers=workers, on_error=on_error)
    assert (len(built["train"]), built.bad) == (199, 1)
    with pytest.raises(ps.ExampleError, match="SystemExit: no more - in example '17'"):
        ps.build(EXAMPLES[Ends], tmp_path / "other", workers=workers)


class Leaves(ps.Example):
    """Leaves the working directory, and reads a file of the user by a relative path."""

    n: int
    text: str

    def load(self) -> None:
        self.text = Path("text.txt").read_text()
        os.chdir("/")


class LeavingSource:
    """The same as a source."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, number: int) -> dict[str, Any]:
        text = Path("text.txt").read_text()
        os.chdir("/")
        return {"n": number, "text": text}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["out", "out.tfrecord", "out-{0..}.tfrecord", "{split}/{0..}.tfrecord"])
@pytest.mark.parametrize("source", ["examples", "source", "stream", "full"])
def test_a_relative_destination_survives_chdir(
    tmp_path: Path, workers: int, name: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a")

    def stream() -> Any:
        for number in range(50):
            os.chdir("/" if number else tmp_path)
            yield {"n": number, "text": "a"}

    made: Any = {"examples": [Leaves(n=n) for n in range(50)], "stream": stream}.get(source, LeavingSource())
    built = ps.build(made, name, workers=workers, schema="full" if source == "full" else None)
    if source == "stream":
        os.chdir(tmp_path)  # a stream runs on between its examples
    assert os.getcwd() == str(tmp_path)
    assert len(built["train"]) == len(ps.load(name)["train"]) == 50
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == []
