"""Bounding boxes as TFDS has them: ymin, xmin, ymax, xmax, each a share of the image's height or width."""

from __future__ import annotations

import math

from ..errors import CorruptionError

SLACK = 1.0  # pixels that a box may reach over the border: annotators' tools round; it is cut off


def relative_box(
    corners: tuple[float, float, float, float], width: float, height: float, place: str
) -> tuple[float, float, float, float]:
    """The relative box of xmin, ymin, xmax, ymax in pixels."""
    xmin, ymin, xmax, ymax = corners
    if not all(map(math.isfinite, corners)) or xmin > xmax or ymin > ymax:
        raise CorruptionError(f"expected a box of xmin, ymin, xmax, ymax, got {_written(corners)}", place)
    if min(xmin, ymin) < -SLACK or xmax > width + SLACK or ymax > height + SLACK:
        size = f"{width:g} x {height:g} pixels"
        raise CorruptionError(f"expected a box inside of {size}, got {_written(corners)}", place)
    return (_share(ymin, height), _share(xmin, width), _share(ymax, height), _share(xmax, width))


def _share(value: float, size: float) -> float:
    return min(max(value / size, 0.0), 1.0)


def _written(corners: tuple[float, float, float, float]) -> str:
    return ", ".join(f"{value:g}" for value in corners)
