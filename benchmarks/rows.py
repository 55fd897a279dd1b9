"""What a row of the table is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.data import Artifact, Data

PATIENCE = 15.0  # seconds that the repetitions of a contender may take in all, ...
FEWEST = 3  # ... unless there were fewer of them
OURS = "penstock"
FASTEST = "the fastest peer"
ROOT = Path(__file__).resolve().parent.parent


def is_ours(contender: str) -> bool:
    """Ours as it comes, or done another way: "penstock, 1 worker"."""
    return contender.split(",")[0] == OURS


def nothing() -> None:
    """The check and the clean-up of a job that needs none."""


@dataclass(frozen=True)
class Setting:
    """What a contender gets to work with."""

    data: Data
    threads: int
    scratch: Path  # a folder for what it writes, on the same disk as the data


@dataclass(frozen=True)
class Job:
    """What one contender does for one row."""

    run: Callable[[], float]  # timed; returns how many units it did
    check: Callable[[], None] = nothing  # not timed, once, before the first run: raises when the answer is wrong
    after: Callable[[], None] = nothing  # not timed, after every run: removes what it wrote


@dataclass(frozen=True)
class Contender:
    """A way to do a row's job. It lives in a process of its own.

    A yardstick is no peer: a limit of the machine, or ours done another way.
    """

    build: Callable[[Setting], Job]
    needs: tuple[Artifact, ...] = ()
    yardstick: bool = False
    role: str = "test"  # of the environment that its process runs in, as requirements/ has them


@dataclass(frozen=True)
class Target:
    """How many times the figure of another contender ours has to be."""

    must: float | None = None
    aim: float | None = None


@dataclass(frozen=True)
class Limit:
    """A bound in the row's own unit that ours has to stay below."""

    must: float
    aim: float | None = None


@dataclass(frozen=True)
class Row:
    """One job, done by us and by others. Without us it is a limit of the machine.

    The figure of a row is a rate: units a second, more is better. That of a `fresh` row is whatever its job returns,
    less is better, and each repetition is a new process. Targets are for a contender by its name, or for whichever
    peer turns out to be the fastest. A row whose job takes long may have fewer repetitions than others.
    """

    name: str
    title: str
    unit: str
    contenders: Mapping[str, Contender]
    targets: Mapping[str, Target] = field(default_factory=dict)
    limit: Limit | None = None
    fresh: bool = False
    repetitions: int | None = None

    @property
    def others(self) -> list[str]:
        """All but ours."""
        return [name for name in self.contenders if name != OURS]

    @property
    def peers(self) -> list[str]:
        """All others that are no yardsticks."""
        return [name for name in self.others if not self.contenders[name].yardstick]

    def target(self, other: str, fastest: str | None) -> Target | None:
        """What ours has to reach against another contender; `fastest` of the peers is known after the measurement."""
        return self.targets.get(other) or (self.targets.get(FASTEST) if other == fastest else None)


def select(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows with these names, or whose names begin with them; all rows when no name is given."""
    unknown = [name for name in names if not any(row.name.startswith(name) for row in rows)]
    if unknown:
        raise ValueError(f"no row is called {', '.join(unknown)}. There are: {', '.join(row.name for row in rows)}")
    return [row for row in rows if not names or any(row.name.startswith(name) for name in names)]
