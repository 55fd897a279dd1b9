"""Options as attributes of an object: checked when they are set, compared, merged."""

from __future__ import annotations

import pickle

import pytest

from penstock.compat.options import Checked, made, maybe


class Inner(Checked):
    sizes = made(lambda: [1, 2])
    depth = 3


class Outer(Checked):
    """Some options."""

    _spellings = {"count": "count_train"} | {}
    count_train = count_test = 32
    name, function, limit = "", maybe(), maybe(int)
    inner = Inner()


def test_defaults_are_each_objects_own() -> None:
    one, two = Outer(), Outer()
    one.inner.sizes.append(3)
    one.inner.depth = 4
    assert (two.inner.sizes, two.inner.depth) == ([1, 2], 3)
    assert (one.function, one.limit, one.count) == (None, None, 32)


def test_what_is_set_is_checked() -> None:
    made_so = Outer()
    made_so.count = 5
    made_so.function, made_so.limit = len, 7
    made_so.function = made_so.limit = None
    assert (made_so.count_train, made_so.count_test) == (5, 32)
    with pytest.raises(TypeError, match=r"expected int, got '5' - at Outer.count_train"):
        made_so.count = "5"
    with pytest.raises(TypeError, match=r"expected int \| None, got 1.5 - at Outer.limit"):
        made_so.limit = 1.5
    with pytest.raises(TypeError, match=r"expected .*Callable \| None, got 3 - at Outer.function"):
        made_so.function = 3
    with pytest.raises(TypeError, match=r"expected list, got \(1,\) - at Inner.sizes"):
        made_so.inner.sizes = (1,)
    with pytest.raises(TypeError, match=r"expected str, got None - at Outer.name"):
        made_so.name = None
    with pytest.raises(AttributeError, match=r"unknown option 'limits' - at Outer. Did you mean 'limit'"):
        made_so.limits = 3
    with pytest.raises(AttributeError, match=r"unknown option 'nothing' - at Outer"):
        made_so.nothing  # noqa: B018


def test_they_compare_merge_and_show_what_they_hold() -> None:
    one, two = Outer(), Outer()
    assert one == two
    assert one != Inner()
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301
    one.name, two.limit, two.inner.depth = "a", 3, 9
    assert one != two
    merged = one.merge(two)
    assert (merged.name, merged.limit, merged.inner.depth, merged.inner.sizes) == ("a", 3, 9, [1, 2])
    assert repr(one).startswith("Outer(count_train=32, count_test=32, name='a'")
    two.name = "b"
    with pytest.raises(ValueError, match=r"expected one value, got 'a' and 'b' - at Outer.name"):
        one.merge(two)
    with pytest.raises(TypeError, match="expected Outer, got Inner - at merge"):
        one.merge(Inner())
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_a_subclass_has_the_options_of_its_parent() -> None:
    class Own(Outer):
        count_train = 64
        extra = 1

    own = Own()
    assert (own.count_train, own.count_test, own.extra, own.function, own.inner.depth) == (64, 32, 1, None, 3)
    own.count_test = own.extra = 5
    with pytest.raises(AttributeError, match="unknown option 'other' - at Own"):
        own.other = 1
