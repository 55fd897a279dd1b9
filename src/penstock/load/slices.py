"""Split expressions: "train", "train[:80%]", "train[1shard]", "train-2013+train-2014", with the rounding of TFDS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..errors import SchemaError, name_known

_PART = re.compile(r"(?P<name>[\w-]+)(?:\[(?P<selector>[^\[\]]*)\])?")
_END = re.compile(r"(?:(?P<value>-?[\d_]*\.?\d+)(?P<unit>%|shard)?)?")
_HINT = 'Write it as "train", "train[:80%]", "train[100:200]", "train[1shard]" or "train+test"'

Span = tuple[int, int]


def resolve(expression: str, splits: Mapping[str, Sequence[int]]) -> list[tuple[str, int, int]]:
    """The parts that an expression names: split, first example, and the one after the last.

    `splits` has the number of examples in each shard of every split. "all" stands for every split, unless one is
    called so. An unknown split is a KeyError.
    """
    parts: list[tuple[str, int, int]] = []
    for text in expression.split("+"):
        match = _PART.fullmatch(text.strip())
        if match is None:
            raise _unread(expression)
        name, selector = match["name"], match["selector"]
        if name in splits:
            parts.append((name, *_span(selector, splits[name], text.strip())))
        elif name == "all" and selector is None:
            parts += [(split, 0, sum(lengths)) for split, lengths in splits.items()]
        else:
            raise KeyError(f"no split {name!r}. {name_known(name, splits, 'splits')}")
    return parts


def _span(selector: str | None, lengths: Sequence[int], text: str) -> Span:
    """Which examples of a split a selector means, such as "10%:" in "train[10%:]"."""
    total = sum(lengths)
    if selector is None:
        return 0, total
    ends = [_END.fullmatch(end.strip()) for end in selector.split(":")]
    given = [end for end in ends if end is not None and end["value"] is not None]
    if len(ends) > 2 or not given or None in ends:
        raise _unread(text)
    units = {end["unit"] or "" for end in given}
    if len(units) > 1:
        raise SchemaError("expected the same unit at both ends", text, _HINT)
    (unit,) = units
    if len(ends) == 1 and unit != "shard":
        raise SchemaError("expected a slice, such as [10:20] or [:10%]", text, "Only a shard is named by one number")
    values = [None if end is None or end["value"] is None else _number(end["value"], unit, text) for end in ends]
    first, last = values if len(values) == 2 else (values[0], (values[0] or 0) + 1)
    if unit == "%":
        start = 0 if first is None else round(first * total / 100.0)
        stop = total if last is None else round(last * total / 100.0)
    elif unit == "shard":
        start, stop = _shards(first, last, lengths, len(values) == 1, text)
    else:
        start, stop = (0 if first is None else int(first)), (total if last is None else int(last))
    if max(abs(start), abs(stop)) > total:
        raise SchemaError(f"expected positions within the {total} examples of the split, got [{selector}]", text)
    start, stop = (end + total if end < 0 else end for end in (start, stop))
    return start, max(start, stop)


def _shards(
    first: float | None, last: float | None, lengths: Sequence[int], single: bool, text: str
) -> tuple[int, int]:
    """The examples of some shards. Shards count from the end where they are negative."""
    count = len(lengths)
    low = 0 if first is None else int(first)
    if single and not -count <= low < count:
        raise SchemaError(f"expected one of the {count} shards of the split", text)
    high = count if last is None else int(last)
    if high <= 0:
        high += count
    return sum(lengths[:low]), sum(lengths[:high])


def _number(value: str, unit: str, text: str) -> float:
    try:
        number = float(value) if unit == "%" else int(value)
    except ValueError:
        raise _unread(text) from None
    if unit == "%" and abs(number) > 100:
        raise SchemaError(f"expected percents of -100 to 100, got {value}", text)
    return number


def _unread(text: str) -> SchemaError:
    return SchemaError("expected a split, or a part of one", repr(text), _HINT)
