"""Where the time of an epoch goes, and what to change."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .epoch import Run
    from .loader import Loader

_ADVICE = {
    "read": "the disk is the limit: larger shards, compression, a faster disk; or shuffle(window=...) for fewer jumps",
    "check": "checksums take most of the time: there is little left to gain",
    "decode": "select() only the fields you need, or use more threads: prefetch(threads=...)",
    "image": "store images smaller, decode to the size you need (Image(size=...)), or use more threads",
    "map": "make the map faster, map whole batches after batch(), or cache() what it makes",
    "collate": "map whole batches after batch(), instead of each example before it",
    "consumer": "loading is fast enough: whatever takes the batches is the limit",
}


@dataclass(frozen=True)
class Profile:
    """What a run took: seconds of work by stage, over all threads, and what came of it.

    stages      read, check, decode, image (in the core), map, collate (in Python), consumer (waiting for the taker)
    bottleneck  the stage that takes longest
    advice      what to change
    """

    seconds: float
    threads: int
    stages: dict[str, float]
    examples: int
    bytes: int
    skipped: int = 0

    @property
    def examples_per_second(self) -> float:
        """Examples that were read each second."""
        return self.examples / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """Megabytes of records that were read each second."""
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def bottleneck(self) -> str:
        """The stage that takes longest."""
        return max(self.stages, key=lambda stage: self.stages[stage])

    @property
    def advice(self) -> str:
        """What to change."""
        return _ADVICE[self.bottleneck]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "seconds": self.seconds,
            "threads": self.threads,
            "examples": self.examples,
            "bytes": self.bytes,
            "examples_per_second": self.examples_per_second,
            "megabytes_per_second": self.megabytes_per_second,
            "stages": self.stages,
            "bottleneck": self.bottleneck,
            "advice": self.advice,
            "skipped": self.skipped,
        }

    def __repr__(self) -> str:
        speed = f"{self.examples_per_second:,.0f} examples/s, {self.megabytes_per_second:,.0f} MB/s"
        lines = [f"{self.examples:,} examples in {self.seconds:.2f} s: {speed}, {self.threads} threads"]
        total = sum(self.stages.values()) or 1.0
        for stage, seconds in self.stages.items():
            share = seconds / total
            lines.append(f"  {stage:<9}{seconds:8.2f} s  {share:4.0%}  {'█' * round(share * 30)}")
        if self.skipped:
            lines.append(f"  {self.skipped:,} damaged records were left out")
        return "\n".join([*lines, f"bottleneck: {self.bottleneck}. {self.advice[0].upper()}{self.advice[1:]}."])


def profile(loader: Loader, seconds: float) -> Profile:
    """Run the loader's next epoch for so long at most. Nothing is done with what it gives: no consumer is the limit."""
    end = time.perf_counter() + seconds
    with iter(copy(loader)) as iteration:  # its cursor stays where it is
        for _ in iteration:
            if time.perf_counter() > end:
                break
        return measured(iteration.run, consumed=False)


def measured(run: Run, *, consumed: bool = True) -> Profile:
    """What a run took so far."""
    took = time.perf_counter() - run.meter.began
    stages = dict.fromkeys(("read", "check", "decode", "image"), 0.0)
    examples = size = 0
    waited = 0.0
    for feed in run.feeds:
        stats = feed.stats()
        for stage in stages:
            stages[stage] += stats[stage]
        waited += stats["full"]
        examples += int(stats["records"])
        size += int(stats["bytes"])
    stages |= run.meter.seconds
    if consumed:
        stages["consumer"] = waited
    return Profile(took, run.threads, stages, examples, size, run.skipped.total)
