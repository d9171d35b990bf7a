"""The names of losses, the same in every verb and function, and what their output gradients span."""

from __future__ import annotations

from lawful.errors import LawfulError

NAMES = {
    "mse": ("squared", "squared-error", "l2"),
    "bce": ("logistic", "binary-cross-entropy"),
    "ce": ("cross-entropy", "crossentropy", "softmax"),
    "full": ("any",),
}
SPANS = {"mse": "full", "bce": "full", "ce": "cross-entropy", "full": "full"}


def loss_name(text: str) -> str:
    """The short name: mse, bce (logistic), ce (softmax cross-entropy), or full: any loss whose gradients span.

    >>> loss_name("Cross_Entropy"), loss_name("logistic")
    ('ce', 'bce')
    """
    word = text.strip().lower().replace("_", "-")
    for name, aliases in NAMES.items():
        if word == name or word in aliases:
            return name
    raise LawfulError(f"unknown loss {text[:40]!r}: choose from mse, bce (logistic), ce (cross-entropy) or full (any)")


def output_gradients(text: str) -> str:
    """What the gradients of a loss in the outputs span: "full", or "cross-entropy" for the plane of sum zero.

    Squared error and the logistic loss span everything, so they have the laws of "full" (P1 Remark B.6).

    >>> output_gradients("mse"), output_gradients("ce")
    ('full', 'cross-entropy')
    """
    return SPANS[loss_name(text)]
