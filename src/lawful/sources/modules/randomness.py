"""Random numbers of a module in train mode, drawn by whoever asks instead of by PyTorch's generator.

Dropout and its relatives are part of what is trained: every step follows the gradient for the masks that it drew. So a
module is called with its draws as arguments, like inputs: gates of 0 and 1 (dropout, stochastic depth, `bernoulli`),
numbers between 0 and 1 (`rand`), and real ones (`randn`). Randomness of any other kind is refused.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lawful.errors import Unsupported

Kind = Literal["gate", "unit", "real"]
ALPHA = 1.7580993408473766  # of `alpha_dropout`: minus the limit of SELU, as PyTorch rounds it
KEPT = (
    0.7  # share of the gates that are open in samples: any mask may be drawn, and half open would starve deep modules
)
BITS = 8  # of numbers between 0 and 1 in samples, so that they are short fractions


@dataclass(frozen=True)
class Draw:
    """So many random numbers of a kind, by the function that asks for them."""

    kind: Kind
    count: int
    function: str


def sample_draws(draws: Sequence[Draw], rows: int, generator: torch.Generator) -> torch.Tensor:
    """Random numbers for so many calls, a row each: short binary fractions.

    >>> sample_draws([Draw("gate", 3, "dropout")], 2, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3])
    """
    parts = [torch.zeros((rows, 0), dtype=torch.float64)]
    for draw in draws:
        shape = rows, draw.count
        if draw.kind == "gate":
            parts.append((torch.rand(shape, generator=generator) < KEPT).double())
        elif draw.kind == "unit":
            parts.append(torch.randint(1, 2**BITS, shape, generator=generator).double() / 2**BITS)
        else:
            numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
            parts.append(torch.round(numbers * 2**BITS) / 2**BITS)
    return torch.cat(parts, dim=1)


def read_draws(call: Callable[[], Any]) -> tuple[Draw, ...]:
    """What a call draws, in order; refused if it is random in another way.

    >>> layer = torch.nn.Dropout(0.5)
    >>> read_draws(lambda: layer(torch.ones(2, 3)))
    (Draw(kind='gate', count=6, function='dropout'),)
    """
    states = _states()
    with _Drawing(None) as drawing:
        call()
    # A generator that moved was used by something that the mode has not seen.
    if _states() != states:
        raise Unsupported(
            "the module draws random numbers in a way that is not read: what it trains in train mode is not known"
        )
    return tuple(drawing.draws)


@contextmanager
def draw_from(numbers: torch.Tensor | None) -> Iterator[None]:
    """Calls inside take their random numbers from here, one after the other; all are left to PyTorch if None.

    >>> layer = torch.nn.Dropout(0.5)
    >>> with draw_from(torch.tensor([1.0, 0.0])):
    ...     layer(torch.ones(1, 2)).tolist()
    [[2.0, 0.0]]
    """
    if numbers is None:
        yield
        return
    with _Drawing(numbers):
        yield


@contextmanager
def open_gates() -> Iterator[None]:
    """Calls inside find every gate open, and every other random number the same."""
    with _Drawing(None):
        yield


@contextmanager
def without_dropout() -> Iterator[None]:
    """Calls inside drop nothing, in train mode too."""
    with _Drawing(None, dropping=False):
        yield


def _states() -> tuple[Any, ...]:
    """The state of every generator that a module may use without saying so."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  (the generator that a module would use)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), name, np.asarray(keys).tobytes(), tuple(rest)


class _Drawing(TorchFunctionMode):
    """Answers every random function; with no numbers to take it writes down what is asked for, and opens all gates."""

    def __init__(self, numbers: torch.Tensor | None, *, dropping: bool = True) -> None:
        super().__init__()
        self.numbers, self.place, self.dropping = numbers, 0, dropping
        self.draws: list[Draw] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        name = getattr(func, "__name__", "")
        answer = _ANSWERS.get(name)
        if answer is not None and (getattr(func, "__module__", "") or "torch").startswith("torch"):
            return answer(self, func, args, options)
        if name in _REFUSED:
            raise Unsupported(f"the module draws from {name} in train mode, which is not read")
        if func in _OPENED:
            with self:  # written in Python: what it calls is seen as well
                return _body(func)(*args, **options)
        return func(*args, **options)

    def take(self, kind: Kind, shape: Sequence[int], function: str) -> torch.Tensor:
        """The next numbers, in a shape."""
        count = math.prod(shape)
        if self.numbers is None:
            self.draws.append(Draw(kind, count, function))
            return torch.full(tuple(shape), 0.5 if kind == "unit" else 1.0, dtype=torch.float64)
        numbers = self.numbers[self.place : self.place + count]
        self.place += count
        return numbers.reshape(tuple(shape))


@cache
def _body(func: FunctionType) -> Callable[..., Any]:
    """A function of `torch.nn.functional` that does not hand itself over to the mode again."""
    # These functions ask whether a mode is active, and hand themselves to it: without that question they run.
    unseen = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _no)
    twin = FunctionType(
        func.__code__, {**func.__globals__, **unseen}, func.__name__, func.__defaults__, func.__closure__
    )
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


def _no(*values: object) -> bool:
    return False


_OPENED: tuple[Any, ...] = (
    functional.multi_head_attention_forward,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
)
Answer = Callable[[_Drawing, Any, tuple[Any, ...], dict[str, Any]], Any]


def _mask(
    mode: _Drawing, values: torch.Tensor, share: float, name: str, *, features: bool = False
) -> torch.Tensor | None:
    """Gates for the entries (or the channels) of values; None if none is ever closed."""
    if not 0 <= share <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {share}")
    if share == 0 or values.numel() == 0 or not mode.dropping:
        return None
    shape = (*values.shape[:2], *(1,) * (values.ndim - 2)) if features else tuple(values.shape)
    return torch.zeros(shape, dtype=torch.float64) if share == 1 else mode.take("gate", shape, name)


def _answer_dropout(name: str, *, alpha: bool = False) -> Answer:
    """`dropout(input, p, training, inplace)` and its relatives."""
    features = name.startswith("feature")

    def answer(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        values, share, training, inplace = _arguments(args, given, ("input", "p", ("training", "train"), "inplace"))
        share, training = 0.5 if share is None else float(share), True if training is None else bool(training)
        mask = _mask(mode, values, share, name, features=features) if training else None
        if mask is None:
            return values
        if alpha:
            scale = 0.0 if share == 1 else 1 / math.sqrt((ALPHA * ALPHA * share + 1) * (1 - share))
            dropped = values * (mask * scale) + (mask - 1) * (ALPHA * scale) + ALPHA * scale * share
        else:
            dropped = values * (mask if share == 1 else mask * (1 / (1 - share)))
        return values.copy_(dropped) if inplace or getattr(func, "__name__", "").endswith("_") else dropped

    return answer


def _arguments(args: tuple[Any, ...], given: dict[str, Any], names: Sequence[str | tuple[str, ...]]) -> list[Any]:
    values = []
    for place, name in enumerate(names):
        known = (name,) if isinstance(name, str) else name
        named = next((given[spelling] for spelling in known if spelling in given), None)
        values.append(args[place] if place < len(args) else named)
    return values


def _native_dropout(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    values, share, training = _arguments(args, given, ("input", "p", "train"))
    mask = _mask(mode, values, float(share), "native_dropout") if training is not False else None
    if mask is None:
        return values, torch.ones_like(values, dtype=torch.bool)
    return values * (mask if share == 1 else mask * (1 / (1 - share))), mask > 0.5


def _attention(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Attention whose weights are dropped is written out."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    query, key, value, bias, share, causal = _arguments(args, given, names)
    if not share:
        return func(*args, **given)
    if given.get("enable_gqa"):
        key, value = (part.repeat_interleave(query.size(-3) // part.size(-3), -3) for part in (key, value))
    scale = given.get("scale")
    scores = query @ key.transpose(-2, -1) * (query.size(-1) ** -0.5 if scale is None else scale)
    if causal:
        bias = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril()
    if bias is not None:
        scores = torch.where(bias, scores, -math.inf) if bias.dtype == torch.bool else scores + bias
    weights = torch.softmax(scores, dim=-1)
    mask = _mask(mode, weights, float(share), "scaled_dot_product_attention")
    return (weights if mask is None else weights * (mask * (1 / (1 - share) if share < 1 else 0.0))) @ value


def _refuse_recurrent_dropout(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Recurrent layers drop between layers, inside PyTorch."""
    packed = isinstance(args[3], (list, tuple)) if len(args) > 3 else False
    layers, share, training = args[5:8] if packed else args[4:7]
    if training and share and layers > 1:
        raise Unsupported("the module drops values between the layers of a recurrent layer, which is not read")
    return func(*args, **given)


def _bernoulli(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """`bernoulli(p)`, `bernoulli(input, p)` and `input.bernoulli_(p)`: gates, but where the outcome is certain."""
    values = args[0]
    within = getattr(func, "__name__", "") == "bernoulli_"
    chance = args[1] if len(args) > 1 else given.get("p", 0.5 if within else values)
    certain = _certain(mode, chance)
    gates = mode.take("gate", tuple(values.shape), "bernoulli") if certain is None else certain.expand(values.shape)
    return values.copy_(gates) if within else gates


def _certain(mode: _Drawing, chance: Any) -> torch.Tensor | None:
    """The outcome, if the chance is 0 or 1 everywhere."""
    if isinstance(chance, torch.Tensor):
        if mode.numbers is None and not bool(((chance > 0) & (chance < 1)).all()):
            raise Unsupported("the module draws from bernoulli with chances of 0 or 1, which are not read")
        return None
    return torch.tensor(float(chance), dtype=torch.float64) if chance in (0, 1) else None


def _random(kind: Kind) -> Answer:
    """`rand(size)`, `randn(size)`: the size is one argument or several."""

    def answer(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        size = given.get("size", args[0] if len(args) == 1 and not isinstance(args[0], int) else args)
        return mode.take(kind, tuple(int(part) for part in size), func.__name__)

    return answer


def _random_like(kind: Kind) -> Answer:
    def answer(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        return mode.take(kind, tuple(_arguments(args, given, ("input",))[0].shape), func.__name__)

    return answer


def _fill_in_place(kind: Kind) -> Answer:
    """`uniform_(from, to)` and `normal_(mean, std)`."""

    def answer(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        first, second = ("from", "to") if kind == "unit" else ("mean", "std")
        values, low, high = _arguments(args, given, ("self", first, second))
        low, high = 0.0 if low is None else low, 1.0 if high is None else high
        scale = high - low if kind == "unit" else high
        return values.copy_(low + scale * mode.take(kind, tuple(values.shape), func.__name__))

    return answer


def _rrelu(mode: _Drawing, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    names = ("input", "lower", "upper", "training", "inplace")
    values, low, high, training, inplace = _arguments(args, given, names)
    low, high = 1 / 8 if low is None else low, 1 / 3 if high is None else high
    if not training:
        return func(*args, **given)
    slopes = low + (high - low) * mode.take("unit", tuple(values.shape), "rrelu") if high > low else low
    bent = torch.where(values > 0, values, values * slopes)
    return values.copy_(bent) if inplace or func.__name__ == "rrelu_" else bent


_ANSWERS: dict[str, Answer] = {
    **{
        name: _answer_dropout(name.rstrip("_"))
        for name in ("dropout", "dropout_", "feature_dropout", "feature_dropout_")
    },
    **{
        name: _answer_dropout(name.rstrip("_"), alpha=True)
        for name in ("alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_")
    },
    "native_dropout": _native_dropout,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _refuse_recurrent_dropout),
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli,
    "rand": _random("unit"),
    "randn": _random("real"),
    "rand_like": _random_like("unit"),
    "randn_like": _random_like("real"),
    "uniform_": _fill_in_place("unit"),
    "normal_": _fill_in_place("real"),
    "rrelu": _rrelu,
    "rrelu_": _rrelu,
}
_REFUSED = frozenset({
    "normal", "randint", "randint_like", "randperm", "random_", "multinomial", "poisson", "binomial", "exponential_",
    "geometric_", "log_normal_", "cauchy_", "fractional_max_pool2d", "fractional_max_pool3d",
})  # fmt: skip
