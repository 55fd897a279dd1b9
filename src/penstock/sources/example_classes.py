"""Examples of classes, with the options that their `load` and `split` take."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..errors import SchemaError, check_known, name_known
from ..schema.columns import ExampleDict, Value
from ..schema.example_class import Example
from ..schema.schema import Schema
from .adapt import as_source
from .fingerprint import code_digest, described
from .protocol import Source, Stream, Subset, own_key

METHODS = ("load", "split")
_Parameter = inspect.Parameter
_GIVEN_BY_NAME = (_Parameter.POSITIONAL_OR_KEYWORD, _Parameter.KEYWORD_ONLY)


def examples(
    source: object, *, load: Mapping[str, Any] | None = None, split: Mapping[str, Any] | None = None
) -> Prepared | PreparedStream:
    """Examples of `Example` classes, with options for their methods.

        examples(toys, load={"root": "recordings", "normalize": True}, split={"bins": 5})

    source  a list of them, a generator function, or whatever gives them one by one
    load    what each one's `load` gets
    split   what each one's `split` gets

    An option that a method does not take, or one that it needs and does not get, is an error. Options tell a source
    from others, as its keys do.
    """
    options = Options(_named(load, "load"), _named(split, "split"))
    if isinstance(source, (str, bytes, Mapping)) or not (isinstance(source, (Iterable, Sized)) or callable(source)):
        raise SchemaError(f"expected examples, got {type(source).__name__}", hint="Give a list of them")
    adapted = as_source(source)
    return PreparedStream(adapted, options) if isinstance(adapted, Stream) else Prepared(adapted, options)


@dataclass(frozen=True)
class Options:
    """What the methods of an example get."""

    load: dict[str, Any]
    split: dict[str, Any]

    def check(self, kind: type) -> None:
        """That a class of examples takes these options, and needs no others."""
        for method in METHODS:
            check_method(kind, method, getattr(self, method))

    def to_json(self) -> dict[str, object]:
        """Those that were given."""
        given = {method: getattr(self, method) for method in METHODS if getattr(self, method)}
        return {method: described(options, f"{method} options") for method, options in given.items()}


def check_method(kind: type, method: str, options: Mapping[str, Any]) -> None:
    """That a class's method takes these options, and needs no others."""
    function = getattr(kind, method, None)
    if function is None or function is getattr(Example, method):  # which takes anything, and does nothing with it
        parameters = []
    else:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    where = f"{kind.__name__}.{method}"
    known = [each.name for each in parameters if each.kind in _GIVEN_BY_NAME]
    if not any(each.kind is _Parameter.VAR_KEYWORD for each in parameters):
        check_known(options, known, "option", where)
    for each in parameters:
        if each.name in known and each.default is _Parameter.empty and each.name not in options:
            hint = f'Give it: examples(source, {method}={{"{each.name}": ...}})'
            raise SchemaError(f"expected the option {each.name!r}, got none", where, hint)


Dealt = dict[str, dict[str, Any]]  # the options of each method


def deal(
    kinds: Iterable[type],
    options: Mapping[str, Any],
    methods: Sequence[str] = METHODS,
    *,
    base: type = Example,
    besides: Iterable[str] = (),
) -> dict[type, Dealt]:
    """Options dealt out among the methods of classes: each gets those that it names, or all where it has **kwargs.

    An option that no method can accept is an error. A method that a class inherits from `base` does nothing: it accepts
    no option.

    besides  other options, for the suggestion in the error
    """
    dealt: dict[type, Dealt] = {kind: {} for kind in kinds}
    known: list[str] = []
    accepted: set[str] = set()
    for kind, method in product(dealt, methods):
        parameters = inspect.signature(getattr(kind, method)).parameters.values()
        named = [each.name for each in parameters if each.kind in _GIVEN_BY_NAME]
        takes_all = any(each.kind is _Parameter.VAR_KEYWORD for each in parameters)
        dealt[kind][method] = {name: value for name, value in options.items() if takes_all or name in named}
        known += named[1:]  # without self, or what stands in its place
        if not _is_inherited(kind, method, base):
            accepted |= dealt[kind][method].keys()
    for name in options if dealt else ():
        if name not in accepted:
            hint = name_known(name, dict.fromkeys([*known, *besides]), "options")
            raise SchemaError(f"unknown option {name!r}", ", ".join(kind.__name__ for kind in dealt), hint)
    return dealt


def unnamed(dealt: Mapping[type, Dealt], options: Iterable[str]) -> list[str]:
    """The options that no method names: they are in the **kwargs of some."""
    functions = [getattr(kind, method) for kind, given in dealt.items() for method in given]
    named = {name for function in functions for name in inspect.signature(function).parameters}
    return [name for name in options if name not in named]


def _is_inherited(kind: type, method: str, base: type) -> bool:
    """Whether a class has a method from the base alone."""
    return inspect.getattr_static(kind, method) is inspect.getattr_static(base, method, None)


def check_methods(source: Source) -> None:
    """Check that examples which load themselves get the options that their methods need, and no others."""
    while isinstance(source, Subset):
        source = source.source
    given = source.given if isinstance(source, Prepared) else Options({}, {})
    for kind in source.example_classes:
        given.check(kind)


def code_of(source: Source) -> dict[str, str]:
    """Return what distinguishes the methods of a source's examples from those that they had before."""
    return {
        f"{kind.__qualname__}.{method}": code_digest(getattr(kind, method))
        for kind in source.example_classes
        for method in METHODS
        if hasattr(kind, method)
    }


class Ready:
    """An example whose `load` has its options."""

    __slots__ = ("example", "given")

    def __init__(self, example: Any, given: Options) -> None:
        self.example = example
        self.given = given

    @property
    def key(self) -> str | None:
        """The example's own."""
        return own_key(self.example)

    def load(self) -> None:
        """With the options."""
        self.example.load(**self.given.load)

    def to_dict(self) -> ExampleDict:
        """What is stored."""
        stored: ExampleDict = self.example.to_dict()
        return stored

    def __getattr__(self, name: str) -> Any:
        """The example's attributes, as they are before load()."""
        if name.startswith("__") or name in Ready.__slots__:  # while it is copied or unpickled there is no example yet
            raise AttributeError(name)
        return getattr(self.example, name)

    def __copy__(self) -> Ready:
        return type(self)(copy(self.example), self.given)


class ReadyToSplit(Ready):
    """An example that becomes many, whose `load` and `split` have their options."""

    __slots__ = ()

    def split(self) -> Iterable[Value]:
        """With the options."""
        parts: Iterable[Value] = self.example.split(**self.given.split)
        return parts


def _ready(example: object, options: Options) -> Any:
    """The example with its options; a dict has none to take."""
    if isinstance(example, Mapping) or not hasattr(example, "load"):
        return example
    splits = getattr(type(example), "split", Example.split) is not Example.split
    return (ReadyToSplit if splits else Ready)(example, options)


class Prepared(Source):
    """A listed source of examples whose methods have their options."""

    def __init__(self, source: Source, options: Options) -> None:
        self.source = source
        self.given = options
        self._classes = source.example_classes
        if not self._classes and len(source):
            with suppress(Exception):  # an example that cannot be had is the build's to deal with
                self._classes = {type(source[0])}
        self.schema = source.schema or self._class_schema()
        check_methods(self)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return _ready(self.source[index], self.given)

    def __repr__(self) -> str:
        return f"Prepared({len(self)} examples, {_shown(self.given)})"

    @property
    def options(self) -> dict[str, object]:
        """What the methods get, plain."""
        return self.given.to_json()

    def _class_schema(self) -> Schema | None:
        """Return the schema of the one class that all examples have."""
        declared = getattr(next(iter(self._classes)), "schema", None) if len(self._classes) == 1 else None
        schema = declared() if callable(declared) else declared
        return schema if isinstance(schema, Schema) else None

    @property
    def runs_user_code(self) -> bool:
        """That of the examples."""
        return True

    @property
    def example_classes(self) -> set[type]:
        """The classes of the examples."""
        return self._classes

    def key(self, index: int) -> str:
        """Return the key that the example has in the source."""
        return self.source.key(index)

    def place(self, index: int) -> str:
        """Return where the example comes from."""
        return self.source.place(index)

    def stamp(self, index: int) -> str:
        """Return the source's."""
        return self.source.stamp(index)


class PreparedStream(Stream):
    """A stream of examples whose methods have their options."""

    def __init__(self, source: Stream, options: Options) -> None:
        self.source = source
        self.given = options

    def __iter__(self) -> Iterator[Value]:
        kinds: set[type] = set()
        for example in self.source:
            if type(example) not in kinds and hasattr(example, "load"):
                self.given.check(type(example))
                kinds.add(type(example))
            yield _ready(example, self.given)

    def __repr__(self) -> str:
        return f"PreparedStream({_shown(self.given)})"

    @property
    def restarts(self) -> bool:
        """The source's."""
        return self.source.restarts

    @property
    def options(self) -> dict[str, object]:
        """What the methods get, plain."""
        return self.given.to_json()


def _shown(options: Options) -> str:
    given = [f"{method}={getattr(options, method)!r}" for method in METHODS if getattr(options, method)]
    return ", ".join(given) or "no options"


def _named(options: object, method: str) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise SchemaError(f"expected options as a dict of name: value, got {options!r}", method)
    return dict(options)
