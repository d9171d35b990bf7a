"""What is said of the symmetries of a module: what training conserves, leaves alone and locks because of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lawful.outward import at_most
from lawful.sentences import sentence

MOST_NAMED = 4


@sentence("symmetries.conserved", claims="gradient flow conserves at least so many independent quantities of a module")
def conserved(laws: int, parameters: int, mode: str) -> str:
    """Whatever the data and the loss; there may be more."""
    quantities = "1 independent quantity" if laws == 1 else f"{laws:,} independent quantities"
    return f"At least {quantities} of {parameters:,} trained parameters, whatever the data and loss ({mode} mode)."


@sentence(
    "symmetries.group",
    claims="a group of this dimension, and at least so many permutations, keep the module's function",
)
def group(dimension: int, log10_discrete: float) -> str:
    """What changes the weights and not the function; there may be more.

    >>> group(3, 0.7782)
    'A continuous group of dimension 3 and at least 10^0.7 permutations change the weights and not the function.'
    """
    words = f"A continuous group of dimension {dimension:,}" if dimension else ""
    if log10_discrete > 0:
        words += f"{' and at' if words else 'At'} least {orders(log10_discrete)} permutations"
    if not words:
        return "No symmetry was found."
    verb = "change" if log10_discrete > 0 else "changes"
    return f"{words} {verb} the weights and not the function."


def orders(log10_discrete: float) -> str:
    """A number of permutations that there are at least: its logarithm is rounded downwards.

    >>> orders(0.7782), orders(0.0)
    ('10^0.7', '10^0.0')
    """
    return f"10^{math.floor(10 * log10_discrete) / 10:.1f}"


@sentence("symmetries.dead", claims="the gradient of so many entries of these parameters is 0 at all weights")
def dead(entries: int, parameters: Sequence[tuple[str, int]]) -> str:
    """Entries that no loss sees."""
    names = ", ".join(f"{name} ({count:,})" for name, count in parameters[:MOST_NAMED])
    rest = f" and {len(parameters) - MOST_NAMED} more" if len(parameters) > MOST_NAMED else ""
    are = "1 entry is dead, its gradient is" if entries == 1 else f"{entries:,} entries are dead, their gradients are"
    return f"{are} always 0: {names}{rest}."


@sentence("symmetries.advise_dead", claims="the gradient of so many entries is 0 at all weights: they may be left out")
def advise_dead(entries: int, parameters: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """Entries that training never moves."""
    names = ", ".join(name for name, _ in parameters[:3]) + (", ..." if len(parameters) > 3 else "")
    seen = "1 entry that no loss sees needs" if entries == 1 else f"{entries:,} entries that no loss sees need"
    return "leave out dead parameters", f"{seen} no memory, gradient or optimiser state: {names}"


@sentence("symmetries.advise_unlocking", claims="the command's rescaling keeps the function and frees so many signs")
def advise_unlocking(locked_now: int, left: int) -> tuple[str, str]:
    """Signs that a rescaling of channels frees."""
    freed, weights = locked_now - left, "sign-locked weight" if locked_now == 1 else "sign-locked weights"
    title = f"rescale to free {freed:,} of {locked_now:,} {weights}"
    return (
        title,
        f"training can change {'its sign' if freed == 1 else 'their signs'} again; the function is the same now",
    )


@sentence("symmetries.advise_balancing", claims="the command's rescaling keeps the function and has a smaller norm")
def advise_balancing(saved: float) -> tuple[str, str]:
    """Equal norms of incoming and outgoing weights of every channel that can be scaled."""
    percent = f"{math.floor(1000 * saved) / 10:.1f}%"
    return "rescale to equal norms", f"squared norm of the rescaled weights {percent} smaller, the function unchanged"


@sentence("symmetries.locked", claims="so many balances are conserved, and lock the signs of exactly so many weights")
def locked(balances: int, weights: int) -> str:
    """What the balances of the scaling graph lock; other laws may lock more."""
    count = "1 balance" if balances == 1 else f"{balances:,} balances"
    verb = "locks" if balances == 1 else "lock"
    if weights == 0:
        return f"{count} {verb} no weight."
    return f"{count} {verb} the sign{'s' * (weights != 1)} of {weights:,} weight{'s' * (weights != 1)}."


@sentence("symmetries.unlocked", claims="a rescaling that keeps the function leaves so many weights locked by balances")
def unlocked(left: int) -> str:
    """What rescaling can free."""
    return f"Rescaling, which keeps the function, would leave {left:,}."


@sentence(
    "symmetries.checked", claims="at random points no generator changes the function by more than this, relatively"
)
def checked(points: int, worst: float) -> str:
    """Generators held against gradients."""
    return f"every generator at {points} random points, off by {at_most(worst, 2)} at most"


# Not definite


def none_dead_found() -> str:
    """The rules found nothing; that there is nothing they do not say."""
    return "No parameter was found to be dead."
