"""Examples of classes, with the options that their `load` and `split` take."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..errors import SchemaError, check_known, name_known
from ..schema.example_class import Example
from ..schema.schema import Schema
from .fingerprint import code_digest, described
from .protocol import Subset, is_listed, key_of, own_key, place_of

METHODS = ("load", "split")
_Parameter = inspect.Parameter
_GIVEN_BY_NAME = (_Parameter.POSITIONAL_OR_KEYWORD, _Parameter.KEYWORD_ONLY)


def examples(
    source: Any, *, load: Mapping[str, Any] | None = None, split: Mapping[str, Any] | None = None
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
    if is_listed(source):
        return Prepared(source, options)
    if isinstance(source, (str, bytes, Mapping)) or not (isinstance(source, Iterable) or callable(source)):
        raise SchemaError(f"expected examples, got {type(source).__name__}", hint="Give a list of them")
    return PreparedStream(source, options)


@dataclass(frozen=True)
class Options:
    """What the methods of an example get."""

    load: dict[str, Any]
    split: dict[str, Any]

    def check(self, kind: type) -> None:
        """That a class of examples takes these options, and needs no others."""
        for method in METHODS:
            check_method(kind, method, getattr(self, method))

    def to_json(self) -> dict[str, Any]:
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


def kinds_of(source: Any) -> set[type]:
    """The classes of a listed source's examples that load themselves, as far as they are known without loading."""
    while isinstance(source, Subset):
        source = source.source
    if isinstance(source, Prepared):
        return source.kinds
    kinds = set(map(type, source)) if isinstance(source, (list, tuple)) else set()
    return {kind for kind in kinds if hasattr(kind, "load")}


def check_methods(source: Any) -> None:
    """That the examples of a listed source get the options that their methods need, and no others."""
    while isinstance(source, Subset):
        source = source.source
    given = source.given if isinstance(source, Prepared) else Options({}, {})
    for kind in kinds_of(source):
        given.check(kind)


def code_of(source: Any) -> dict[str, str]:
    """What tells the methods of a listed source's examples from those that they had before."""
    return {
        f"{kind.__qualname__}.{method}": code_digest(getattr(kind, method))
        for kind in kinds_of(source)
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

    def to_dict(self) -> dict[str, Any]:
        """What is stored."""
        stored: dict[str, Any] = self.example.to_dict()
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

    def split(self) -> Iterable[Any]:
        """With the options."""
        parts: Iterable[Any] = self.example.split(**self.given.split)
        return parts


def _ready(example: Any, options: Options) -> Any:
    """The example with its options; a dict has none to take."""
    if isinstance(example, Mapping) or not hasattr(example, "load"):
        return example
    splits = getattr(type(example), "split", Example.split) is not Example.split
    return (ReadyToSplit if splits else Ready)(example, options)


class Prepared:
    """A listed source of examples whose methods have their options."""

    def __init__(self, source: Any, options: Options) -> None:
        self.source = source
        self.given = options
        self.kinds = kinds_of(source)
        if not self.kinds and len(source):
            with suppress(Exception):  # an example that cannot be had is the build's to deal with
                self.kinds = {type(source[0])}
        check_methods(self)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return _ready(self.source[index], self.given)

    def __repr__(self) -> str:
        return f"Prepared({len(self)} examples, {_shown(self.given)})"

    @property
    def options(self) -> dict[str, Any]:
        """What the methods get, plain."""
        return self.given.to_json()

    @property
    def schema(self) -> Schema | None:
        """The source's, or that of the one class that all examples have."""
        schema = getattr(self.source, "schema", None)
        if schema is None and len(self.kinds) == 1:
            schema = getattr(next(iter(self.kinds)), "schema", None)
        schema = schema() if callable(schema) else schema
        return schema if isinstance(schema, Schema) else None

    def key(self, index: int) -> str:
        """The key that the example has in the source."""
        return key_of(self.source, index)

    def place(self, index: int) -> str:
        """Where the example comes from."""
        return place_of(self.source, index)

    def stamp(self, index: int) -> str:
        """Changes when the example's content does; empty when unknown."""
        return str(self.source.stamp(index)) if hasattr(self.source, "stamp") else ""


class PreparedStream:
    """A stream of examples whose methods have their options."""

    def __init__(self, source: Any, options: Options) -> None:
        self.source = source
        self.given = options

    def __iter__(self) -> Iterator[Any]:
        kinds: set[type] = set()
        items = self.source() if callable(self.source) and not isinstance(self.source, Iterable) else self.source
        for example in items:
            if type(example) not in kinds and hasattr(example, "load"):
                self.given.check(type(example))
                kinds.add(type(example))
            yield _ready(example, self.given)

    def __repr__(self) -> str:
        return f"PreparedStream({_shown(self.given)})"

    @property
    def options(self) -> dict[str, Any]:
        """What the methods get, plain."""
        return self.given.to_json()


def _shown(options: Options) -> str:
    given = [f"{method}={getattr(options, method)!r}" for method in METHODS if getattr(options, method)]
    return ", ".join(given) or "no options"


def _named(options: Any, method: str) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise SchemaError(f"expected options as a dict of name: value, got {options!r}", method)
    return dict(options)
