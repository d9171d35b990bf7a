"""Parameters that were once called otherwise: the old name still works, with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from lawful.errors import LawfulError

Options = ParamSpec("Options")
Result = TypeVar("Result")


def renamed(**old: str) -> Callable[[Callable[Options, Result]], Callable[Options, Result]]:
    """Let a function take `old="new"` names as well; Python shows the warning once for each line that uses one.

    >>> @renamed(most="top")
    ... def find(top: int = 10) -> int:
    ...     return top
    >>> with warnings.catch_warnings(record=True) as heard:
    ...     warnings.simplefilter("always")
    ...     find(most=3), str(heard[0].message)
    (3, '`most` is now called `top` (the old name still works)')
    """

    def decorate(function: Callable[Options, Result]) -> Callable[Options, Result]:
        @functools.wraps(function)
        def call(*given: Options.args, **named: Options.kwargs) -> Result:
            words: dict[str, Any] = dict(named)
            for was, now in old.items():
                if was not in words:
                    continue
                if now in words:
                    raise LawfulError(f"`{was}` is the old name of `{now}`: give one of them")
                warnings.warn(
                    f"`{was}` is now called `{now}` (the old name still works)", DeprecationWarning, stacklevel=2
                )
                words[now] = words.pop(was)
            return function(*given, **words)

        return call

    return decorate
