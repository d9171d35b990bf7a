"""What is said of neurons that can go, of those that cannot, and of what a pruning changes."""

from __future__ import annotations

from collections.abc import Sequence

from lawful.outward import at_most
from lawful.sentences import sentence

NEEDED = "no affine combination of the other neurons of its layer can take its place"
EVERYWHERE = "for every input"


@sentence("pruning.same_function", claims="the smaller network, before its weights are rounded, is the same function")
def same_function(where: str, rounding: float, inside: str) -> str:
    """What a lossless pruning says; rounding of the weights that took something over is bounded apart."""
    words = f"the function is the same {where}"
    if rounding:
        words += (
            f", but for the rounding of weights, which moves no output by more than {at_most(rounding, 3)} on {inside}"
        )
    return words


@sentence("pruning.moves_at_most", claims="no output moves by more than this, there")
def around_samples(radius: float, samples: str, boxed: bool = False) -> str:
    """Where a bound near samples holds; the radius has all its digits, for one that is rounded up says too much.

    >>> around_samples(0.1, "a sample")
    'for every input within 0.1 of a sample, entry by entry'
    """
    digits = repr(float(radius)).removesuffix(".0")
    return f"for every input{' of the box' if boxed else ''} within {digits} of {samples}, entry by entry"


def moves_at_most(bound: float, where: str, rounding: float = 0.0, inside: str = "") -> str:
    """What a pruning within a tolerance says."""
    words = f"no output moves by more than {at_most(bound, 3)} {where}"
    return words + (f"; storing weights adds at most {at_most(rounding, 3)} on {inside}" if rounding else "")


@sentence("pruning.compared", claims="the two networks differ by at most this on the box")
def compared(bound: float) -> str:
    """The two networks bounded as a whole."""
    return f"compared as a whole they differ by at most {at_most(bound, 3)} (certified, rounding included)"


@sentence("pruning.all_needed", claims="for no hidden neuron, alone, can others of its layer take its place exactly")
def all_needed(count: int) -> str:
    """Every neuron of a network was decided, and none can go."""
    if count == 1:
        return "its one hidden neuron cannot be left out: no constant can take its place (proved)"
    return f"none of the {count} hidden neurons can be left out alone: {NEEDED} (proved for each)"


@sentence("pruning.some_needed", claims="of so many neurons it was proved that none, alone, can be replaced by others")
def some_needed(needed: int, undecided: int, reason: str) -> str:
    """Some neurons were decided: each of them is needed."""
    total = needed + undecided
    return f"{needed} of {total} hidden neurons are proved to be needed, {undecided} undecided ({reason})"


@sentence("pruning.none_dead", claims="no hidden neuron is 0 for every input")
def none_dead() -> str:
    """All neurons were decided, and none is dead."""
    return "dead neurons (0 for every input): none"


@sentence("pruning.some_dead", claims="these hidden neurons are 0 for every input, and no others if all were decided")
def some_dead(names: str, undecided: int) -> str:
    """Those that are dead, and of how many that is not known."""
    return f"dead neurons (0 for every input): {names}" + open_question(undecided)


@sentence("pruning.none_linear", claims="every hidden neuron that is not dead bends somewhere")
def none_linear() -> str:
    """All neurons were decided, and none acts as one linear map."""
    return "neurons that never bend: none"


@sentence("pruning.some_linear", claims="these hidden neurons act as one linear map on all inputs, others if undecided")
def some_linear(names: str, undecided: int) -> str:
    """Those that never bend, and of how many that is not known."""
    return f"neurons that never bend: {names}" + open_question(undecided)


@sentence(
    "pruning.smallest", claims="every network of this depth and activation that is this function has so many neurons"
)
def smallest(neurons: int, depth: int) -> str:
    """The exact number of neurons that a function needs."""
    layers = "one hidden layer" if depth == 1 else f"{depth} hidden layers"
    return f"the fewest hidden neurons of any network with {layers} that is this function: {neurons} (exact)"


@sentence("pruning.smallest_bounds", claims="the smallest such network has between so many and so many hidden neurons")
def smallest_bounds(lower: int, upper: int, depth: int) -> str:
    """Bounds on the number of neurons that a function needs."""
    layers = "one hidden layer" if depth == 1 else f"{depth} hidden layers"
    return f"the fewest hidden neurons of any network with {layers} that is this function: {lower} to {upper}"


# Not definite: these say only what is not known


def not_found(what: str, undecided: int) -> str:
    """Nothing was found, and not everything was decided."""
    return f"{what}: none found" + open_question(undecided)


def open_question(undecided: int) -> str:
    """Of how many neurons it is not known."""
    return f"; undecided for {undecided} neuron{'s' * (undecided != 1)}" if undecided else ""


def not_decided(reasons: Sequence[str]) -> str:
    """Why neurons are undecided, the commonest reason."""
    return max(dict.fromkeys(reasons), key=list(reasons).count) if reasons else "not asked"
