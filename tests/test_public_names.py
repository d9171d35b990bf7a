"""Every public name can be imported from `lawful` itself."""

from __future__ import annotations

import pytest

import lawful


@pytest.mark.parametrize("name", lawful.__all__)
def test_public_name_is_there_and_documented(name: str) -> None:
    assert (getattr(lawful, name).__doc__ or "").strip()
    assert name in dir(lawful)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = lawful.nonsense


def test_every_home_lists_what_is_public() -> None:
    assert sorted(name for names in lawful._HOMES.values() for name in names) == sorted(lawful.__all__)
