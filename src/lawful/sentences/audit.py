"""What an audit says of a network, each answer made from decided facts, and what it recommends."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor

from lawful.outward import at_most
from lawful.sentences import sentence


@sentence("audit.connected", claims="the set of weights with these balances is connected")
def connected() -> str:
    """Training can reach every sign of every weight, as far as the balances tell."""
    return "Everywhere its balances allow: the invariant set is connected, no weight's sign is locked."


@sentence("audit.locked", claims="so many weights keep their sign on the invariant set, which has 2^k components")
def locked(count: int) -> str:
    """Weights that training cannot take through zero."""
    weights = "1 weight can never change its sign" if count == 1 else f"{count} weights can never change their signs"
    parts = f"{2**count:,}" if count <= 10 else f"2^{count}"
    return f"{weights}: the invariant set has {parts} parts."


@sentence("audit.confined", claims="this output never crosses its bias while training conserves the balances")
def confined(sides: Sequence[tuple[str, str]]) -> str:
    """Outputs that locked signs keep on one side."""
    return ", ".join(f"{output} stays {side} its bias" for output, side in sides) + "."


@sentence("audit.unlocked", claims="after a rescaling that keeps the function so many weights are locked")
def unlocked(left: int) -> str:
    """What rescaling can free."""
    return f"A rescaling that keeps the function leaves {left} locked."


@sentence("audit.removable", claims="so many neurons can go at once, and the function is the same before rounding")
def removable(
    removed: int, hidden: int, kept: int, parameters: int, rounding: float | None, noun: str = "neurons"
) -> str:
    """What a lossless pruning removes; None is a rounding that was not bounded."""
    rounded = f" (rounding weights: at most {at_most(rounding, 2)} on [-1, 1])" if rounding else ""
    if rounding is None:
        rounded = " (up to rounding of weights)"
    return (
        f"{removed} of {hidden} hidden {noun} can go and nothing changes for any input{rounded}: "
        f"{kept:,} of {parameters:,} parameters stay."
    )


@sentence("audit.box", claims="so many neurons can go, and no output moves by more than this on the data's range")
def on_the_range(removed: int, bound: float | Fraction) -> str:
    """What a pruning on the box of the data removes."""
    neurons = "1 neuron" if removed == 1 else f"{removed} neurons"
    return f"{neurons} can go there, and no output moves by more than {at_most(bound, 2)}."


@sentence("audit.silent_on_data", claims="so many hidden neurons are 0 at every sample")
def silent_on_data(count: int) -> str:
    """Neurons that the data never make active."""
    return f"{count:,} neuron{'s' * (count != 1)} never fire{'s' * (count == 1)} on your data"


@sentence("audit.regular", claims="the balances have linearly independent derivatives at these weights")
def regular(rank: int) -> str:
    """The Jacobian of the balances has full rank."""
    return f"rank J = {rank} of {rank}: a regular point of the invariant set."


@sentence("audit.singular", claims="the derivatives of the balances have this rank, because these neurons are cut off")
def singular(rank: int, hidden: int, names: str) -> str:
    """The Jacobian of the balances lacks rank."""
    return f"rank J = {rank} of {hidden}; cut off: {names}."


@sentence(
    "audit.rescaling", claims="scaling a neuron's incoming weights up and its outgoing ones down keeps the function"
)
def rescaling(hidden: int, layered: bool) -> str:
    """The changes of weights that keep every function of this kind."""
    if hidden == 0:
        return "It has no hidden neuron: the weights are the function"
    more = " and permuting those of a layer" if layered else ""
    return f"Rescaling {'its hidden neuron' if hidden == 1 else f'{hidden} neurons'}{more} gives the same function"


@sentence("audit.kinds", claims="so many neurons of the one hidden layer are dead, linear, visible or cancel in groups")
def kinds(counts: Sequence[tuple[str, int]]) -> str:
    """The neurons of one hidden layer by what the function shows of them."""
    return "Its neurons: " + ", ".join(f"{count} {kind}" for kind, count in counts) + "."


@sentence(
    "audit.fiber_dimension",
    claims="beyond scaling and permutation the weights of this function form so many dimensions",
)
def fiber_dimension(dimension: int) -> str:
    """Continuous freedom, from P4's theorems."""
    return f"Beyond that the fiber has dimension {dimension}."


@sentence("audit.balances", claims="gradient flow conserves at least so many quantities, one for each hidden neuron")
def balances(hidden: int) -> str:
    """What is known without a count."""
    if hidden == 0:
        return "It has no hidden neuron and so no balance; whether anything else is conserved was not counted."
    return f"At least {hidden} quantities (the balances); that there are no others was not counted."


@sentence(
    "audit.conserved", claims="so many independent quantities are conserved from every start, and no more if proved"
)
def conserved(laws: int, proved: bool, status: str) -> str:
    """The laws that hold wherever training starts and whatever the data."""
    quantities = "1 independent quantity" if laws == 1 else f"{laws} independent quantities"
    words = f"{quantities}, wherever training starts and whatever the data"
    return words + (": proved that there are no others of that kind." if proved else f" ({status}).")


@sentence("audit.conserved_near", claims="close to these weights so many quantities are conserved, no more if proved")
def conserved_near(near: int, laws: int, proved: bool, status: str) -> str:
    """The laws that hold while training stays close to the present weights."""
    word = "proved" if proved else f"{status}, not proved"
    return (
        "Close to the present weights fewer patterns of active neurons occur, so more is conserved for as "
        f"long as training stays close: {near} ({word}), the {laws} among them."
    )


@sentence("audit.conserved_on_data", claims="on these data so many quantities are conserved close to these weights")
def conserved_on_data(laws: int, proved: bool, status: str) -> str:
    """The laws of one data set."""
    word = "" if proved else f" ({status})"
    return f"On these data alone, which ask less of the weights: {laws}{word}."


@sentence(
    "audit.identifiable", claims="only rescaled and permuted weights of this shape, or generic ones, are this function"
)
def identifiable(known: str, generic: bool) -> str:
    """The function determines the weights, and among which."""
    among = "generic networks" if generic else "all networks"
    return f"{known}, and nothing else does among {among} of this shape, with biases: the network is identifiable."


@sentence(
    "audit.not_identifiable", claims="other weights of this shape than rescaled and permuted ones are this function"
)
def not_identifiable(known: str, reasons: Sequence[str]) -> str:
    """Other weights are the same function too."""
    return f"{known}; so do others of this shape, with biases: {'; '.join(reasons)}."


# What it recommends: a title, and what following it brings


@sentence(
    "audit.advise_pruning", claims="the command removes so many neurons and this share of the parameters, losslessly"
)
def advise_pruning(removed: int, share: float, rounding: float | None, noun: str = "neuron") -> tuple[str, str]:
    """Neurons or channels that change nothing; None is a rounding that was not bounded."""
    rounded = "" if rounding == 0 else " up to rounding of weights"
    neurons = f"1 {noun} that changes" if removed == 1 else f"{removed} {noun}s that change"
    return (
        f"remove {neurons} nothing",
        f"{_percent(share)} fewer parameters, the same function for every input{rounded}",
    )


@sentence(
    "audit.advise_box", claims="the command removes so many neurons, and on the box no output moves by more than this"
)
def advise_box(removed: int, share: float, bound: Fraction) -> tuple[str, str]:
    """Neurons that inputs in a box do not need."""
    neurons = "1 neuron" if removed == 1 else f"{removed} neurons"
    return (
        f"remove {neurons} that inputs in your range do not need",
        f"{_percent(share)} fewer parameters, outputs on the box within {at_most(bound, 2)}",
    )


@sentence(
    "audit.advise_unlocking", claims="the command's rescaling keeps the function and leaves so many weights locked"
)
def advise_unlocking(locked_now: int, left: int) -> tuple[str, str]:
    """Signs that a rescaling frees."""
    rest = f"{left} stay{'s' * (left == 1)} locked" if left else "no sign is locked any more"
    weights = f"of {locked_now} sign-locked weights" if locked_now != 1 else "sign-locked weight"
    title = f"rescale neurons to free {locked_now - left} {weights}"
    return title, f"{rest}; the function is the same now"


@sentence("audit.advise_balancing", claims="the command's rescaling keeps the function; no other has a smaller norm")
def advise_balancing(saved: float) -> tuple[str, str]:
    """Equal norms of incoming and outgoing weights."""
    benefit = f"squared weight norm {_percent(saved)} smaller, up to rounding the smallest of any rescaling"
    return "rescale neurons to equal norms", benefit


def _percent(share: float) -> str:
    """A saving, rounded downwards."""
    return f"{floor(1000 * share) / 10:.1f}%"
