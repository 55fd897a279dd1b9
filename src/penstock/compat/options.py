"""Options as attributes of an object, as other systems have their configs: checked when they are set, and merged."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cached_property
from types import UnionType
from typing import Any, ClassVar

from ..errors import name_known


def maybe(kind: Any = Callable) -> Any:
    """The default of an option that is None unless told: a function, or what else it may be. It may be None again."""
    return kind | None


def made(function: Callable[[], Any]) -> Any:
    """The default of an option that is made when it is first asked for."""
    return cached_property(lambda options: function())


class Checked:
    """Options by name. The default of one says what it may be, and an unknown one is an error.

    class Batches(Checked):
        size_train = size_test = 32
        shuffle, function = True, maybe()

    _spellings  other names of options
    """

    _spellings: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        for name, default in self._defaults().items():
            if not isinstance(default, cached_property):
                vars(self)[name] = None if isinstance(default, UnionType) else deepcopy(default)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parents = (kind for kind in reversed(cls.__mro__) if issubclass(kind, Checked) and kind is not Checked)
        return {name: default for kind in parents for name, default in vars(kind).items() if not name.startswith("_")}

    def __setattr__(self, name: str, value: object) -> None:
        name, where, defaults = self._spellings.get(name, name), type(self).__name__, self._defaults()
        if name not in defaults:
            raise AttributeError(f"unknown option {name!r} - at {where}. {name_known(name, defaults, 'options')}")
        default = defaults[name]
        kind = default if isinstance(default, UnionType) else type(getattr(type(self)(), name))
        if not isinstance(value, kind):
            expected = str(kind) if isinstance(kind, UnionType) else kind.__name__
            raise TypeError(f"expected {expected}, got {value!r} - at {where}.{name}")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Only called for what is no option: another spelling of one."""
        if name not in self._spellings:
            raise AttributeError(f"unknown option {name!r} - at {type(self).__name__}")
        return getattr(self, self._spellings[name])

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._defaults())

    __hash__ = None  # type: ignore[assignment]  # it may change

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def merge(self, other: Checked) -> Any:
        """What both say; where both say something, and not the same, that is an error."""
        if type(other) is not type(self):
            raise TypeError(f"expected {type(self).__name__}, got {type(other).__name__} - at merge")
        merged, plain = type(self)(), type(self)()
        for name in self._defaults():
            mine, theirs, default = (getattr(each, name) for each in (self, other, plain))
            if isinstance(mine, Checked):
                mine = mine.merge(theirs)
            elif mine not in (default, theirs) and theirs != default:
                raise ValueError(f"expected one value, got {mine!r} and {theirs!r} - at {type(self).__name__}.{name}")
            setattr(merged, name, theirs if mine == default else mine)
        return merged
