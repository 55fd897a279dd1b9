"""Streams: examples that come one after the other, for one split or for several, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from ..errors import SchemaError
from ..subset import StreamSubset, is_listed
from .inputs import all_parts, open_stream, stream_key
from .schemas import Loadable, Named, sample


class Stream:
    """A pass over a stream. A rule says which split each example belongs to; without one, all belong to the first."""

    def __init__(self, names: tuple[str, ...], source: Any, rule: Any = None) -> None:
        self.names = names
        self.examples = open_stream(source)
        self.rule = rule
        self._samples: list[Named] | None = None

    def by_split(self, chunk: list[Any], first: int) -> dict[str, tuple[list[int], list[Any]]]:
        """Some examples, of which the first has the number `first`, with their numbers, each for its split."""
        if self.rule is None:
            return {self.names[0]: (list(range(first, first + len(chunk))), chunk)}
        found: dict[str, tuple[list[int], list[Any]]] = {}
        for number, example in enumerate(chunk, first):
            numbers, examples = found.setdefault(self.split_of(number, example), ([], []))
            numbers.append(number)
            examples.append(example)
        return found

    def split_of(self, number: int, example: Any) -> str:
        """The split of an example."""
        if self.rule is None:
            return self.names[0]
        key = stream_key(example, number)
        name: str = self.rule(key, example, key)
        if name not in self.names:
            raise SchemaError(f"expected one of the splits {', '.join(self.names)}, got {name!r}", key)
        return name

    def look(self, on_error: str) -> list[Named]:
        """Some loaded examples from its beginning. It goes on as if nobody had looked."""
        if self._samples is None:
            head: list[Any] = []
            self._samples = sample(self._watched(head), on_error)
            self.examples = chain(head, self.examples)
        return self._samples

    def _watched(self, head: list[Any]) -> Iterator[Loadable]:
        for number, example in enumerate(self.examples):
            head.append(example)
            place, load = partial("example {}".format, number), partial(all_parts, example)
            yield self.split_of(number, example), stream_key(example, number), place, load


def open_streams(sources: Mapping[str, Any]) -> dict[str, Stream]:
    """The streams among the sources of some splits. Splits of one stream share it."""
    passes: dict[tuple[int, Any], list[str]] = {}
    for name, source in sources.items():
        if not is_listed(source):
            shared = (id(source.source), source.rule) if isinstance(source, StreamSubset) else (id(source), name)
            passes.setdefault(shared, []).append(name)
    streams: dict[str, Stream] = {}
    for names in passes.values():
        source = sources[names[0]]
        subset = isinstance(source, StreamSubset)
        whole = Stream(tuple(names), source.source, source.rule) if subset else Stream((names[0],), source)
        streams.update(dict.fromkeys(names, whole))
    return streams
