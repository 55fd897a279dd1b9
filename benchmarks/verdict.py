"""Medians, spreads, ratios, and whether a target is reached."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

Verdict = Literal["aim", "must", "within spread", "missed", ""]


def spread(figures: Sequence[float]) -> float:
    """The distance between the quartiles, relative to the median."""
    if len(figures) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return (high - low) / middle


def ratio(ours: Sequence[float], peer: Sequence[float], *, less_is_better: bool = False) -> tuple[float, float]:
    """How many times better we are, by medians, and the spread of that ratio over the rounds that both have.

    Figures of one round were taken one after the other, so a slow minute of the machine falls on both.
    """
    if less_is_better:
        ours, peer = peer, ours
    rounds = [a / b for a, b in zip(ours, peer, strict=False)]
    return statistics.median(ours) / statistics.median(peer), spread(rounds)


def best(figures: Mapping[str, Sequence[float]], *, less_is_better: bool = False) -> str | None:
    """Whose median is the best; None when there is nobody."""
    choose = min if less_is_better else max
    return choose(figures, key=lambda name: statistics.median(figures[name]), default=None)


def verdict(ratio: float, spread: float, must: float | None, aim: float | None) -> Verdict:
    """A must is missed when the ratio stays below it by more than its spread."""
    if aim is not None and ratio >= aim:
        return "aim"
    if must is None:
        return ""
    if ratio >= must:
        return "must"
    return "within spread" if ratio * (1 + spread) >= must else "missed"
