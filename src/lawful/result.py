"""Results that show themselves: as a line, as text, as a dict, as rows, as a picture, and in a notebook.

Results live in rooms that know nothing of `report`: `lawful/__init__.py` tells them where their views are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lawful.errors import Unsupported

if TYPE_CHECKING:
    from lawful.figure import Figure

LONGEST = 160  # characters of a `repr`
# What the words of verdicts mean in an `if`. A count that is "proved" is no yes, so its word is not among them.
ANSWERS: dict[str | bool, bool] = {
    "equal": True, "different": False, "holds": True, "violated": False, "yes": True, "no": False,
    True: True, False: False,
}  # fmt: skip
PLAIN = (bool, int, float, str, Fraction, Enum)


class Shown:
    """The base of every result. `report/views.py` says what each kind of result looks like.

    >>> from lawful.conservation import count_laws
    >>> found = count_laws("2-3-1 relu")
    >>> found
    <LawCount: 3 independent conservation laws>
    >>> found.to_dict()["laws"]
    3
    """

    reading: Any = None  # how its network was read: a `lawful.Reading`, set by the verb
    readings: Any = ()  # the same of each network, where there are several
    evidence: Any = None  # what makes its certificate: set by the function of `lawful` that knows its networks
    views: ClassVar[Callable[[], Any]]  # where results find what they look like

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]  # a dataclass would write its own, with every array

    def __repr__(self) -> str:
        """The answer in one line; a kind of result that has no words shows its fields."""
        if head := str(type(self).views().headline(self)):
            return f"<{type(self).__name__}: {head if len(head) <= LONGEST else head[: LONGEST - 3] + '...'}>"
        parts = [part for each in fields(self) if (part := _part(each.name, getattr(self, each.name, None)))]  # type: ignore[arg-type]
        while len(line := f"<{type(self).__name__}: {', '.join(parts)}>") > LONGEST and len(parts) > 1:
            parts.pop()
        return line

    def __str__(self) -> str:
        return str(type(self).views().text(self))

    def __bool__(self) -> bool:
        """The answer to a question of yes or no; an open question, and a result that answers none, is refused."""
        for name in ("verdict", "status", "identifiable"):
            answer = getattr(self, name, None)
            if isinstance(answer, (str, bool)) and answer in ANSWERS:
                return ANSWERS[answer]
            if answer == "proved" and getattr(self, "within", None) is not None:  # a distance that was asked about
                return True
            if answer == "undecided" or (name == "identifiable" and hasattr(self, name)):
                raise TypeError(f"this {type(self).__name__} is undecided, so neither true nor false")
        raise TypeError(
            f"a {type(self).__name__} answers no question of yes or no, so it is neither true nor false: ask its fields"
        )

    def certificate(self, **options: Any) -> Mapping[str, Any]:
        """The evidence for the answer, which `lawful.verify` checks; refused if there is none.

        >>> import lawful
        >>> lawful.verify(lawful.identifiable("2-3-1 relu").certificate()).kind
        'identifiable'
        """
        if self.evidence is None:
            raise Unsupported(f"there is nothing about this {type(self).__name__} that can be checked again")
        return dict(self.evidence(**options))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the command line: numbers, texts, lists and dicts only."""
        return dict(type(self).views().to_dict(self))

    def to_dataframe(self) -> Any:
        """The rows of the result as a `pandas.DataFrame`; refused if it has none."""
        return type(self).views().to_dataframe(self)

    def plot(self) -> Figure:
        """The result as a figure, which a notebook shows and `to_matplotlib` turns into one to adapt."""
        return type(self).views().plot(self)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str:
        return str(type(self).views().html(self))


Result = TypeVar("Result")


def with_evidence(result: Result, make: Callable[..., Mapping[str, Any]] | None) -> Result:
    """The result, whose `certificate()` is what `make` returns."""
    object.__setattr__(result, "evidence", make)
    return result


def truth_of(verdict: str, reason: str) -> bool:
    """What a verdict on equality means in an `if`: equal is true, different (a rounded copy is) false, and undecided
    neither.

    >>> truth_of("equal", ""), truth_of("different", ""), truth_of("rounded", "")
    (True, False, False)
    """
    if verdict == "undecided":
        raise TypeError(f"an undecided verdict is neither true nor false: {reason}")
    return verdict == "equal"


def _part(name: str, value: Any) -> str:
    if name.startswith("_") or value is None or (isinstance(value, str) and not value):
        return ""
    if isinstance(value, PLAIN):
        text = str(value) if isinstance(value, (Fraction, Enum)) else repr(value)
        return f"{name}={text if len(text) <= 40 else text[:37] + '...'}"
    return f"{name}[{len(value)}]" if isinstance(value, (tuple, list, dict)) and value else ""
