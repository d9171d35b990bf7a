"""The words of the field, each in one sentence: explained on every page where they stand, and in the docs' glossary."""

from __future__ import annotations

import re
from html import escape

from lawful.report.plain import tidy

TERMS = {
    "balance": "Of a hidden neuron: the sum of its squared incoming weights minus that of its squared outgoing ones. "
    "Gradient flow keeps it.",
    "conservation law": "A function of the weights that training by gradient flow never changes.",
    "gradient flow": "Training with infinitely small steps: the weights follow the negative gradient of the loss.",
    "invariant set": "All weights with the same balances: gradient flow that starts in it stays in it.",
    "sign-locked": "A weight that can never reach zero while the balances are kept, so that it never changes sign.",
    "locked": "A weight that can never reach zero while the balances are kept, so that it never changes sign.",
    "barrier": "How close to zero a locked weight can come.",
    "fiber": "All parameters that compute the same function.",
    "identifiable": "The function determines the parameters, up to the order and the scale of neurons.",
    "rank J": "The rank of the derivative of all balances; it drops exactly where neurons are cut off.",
    "singular value": "How strongly the balances react to a direction of the weights; near 0 a neuron is nearly off.",
    "effective dimension": "How many directions a layer's outputs on the data really use.",
    "certificate": "A file with the evidence for an answer, which `lawful verify` re-checks with other code.",
    "kink": "A place where a ReLU bends: the flow changes its equation there.",
    "drift": "How far a quantity moved that gradient flow would have kept.",
    "dead": "A neuron whose output is 0 for every input.",
    "bottleneck": "A neuron with a single incoming or a single outgoing edge.",
    "truncation": "A layer read as a map of the input space that cuts points off along a cone.",
    "geodesic": "A path on which no small change lowers the cost.",
    "region": "A part of the input space on which the network is one affine map.",
    "gauge": "A change of the parameters that leaves the function alone, such as rescaling a ReLU neuron.",
    "pruning": "Removing neurons; here only with a proved bound on what that changes.",
}
_WORDS = re.compile(r"(?<![-\w`])(" + "|".join(sorted(map(re.escape, TERMS), key=len, reverse=True)) + r")(s?)\b")


_POWER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)e([+-]?)0*(\d+)\b")
_MINUS = re.compile(r"(?<=[\s(\[])-(?=\d)|^-(?=\d)")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def as_prose(text: str) -> str:
    """The text with its numbers as people write them; commands stay as they are.

    >>> as_prose("off by 1.0e-07 at most, -3 of 2e+12, 0.0e+00"), as_prose("lawful check --box=-1e-3,1 x-2.pt")
    ('off by 1·10⁻⁷ at most, −3 of 2·10¹², 0', 'lawful check --box=-1e-3,1 x-2.pt')
    """
    if text.startswith("lawful "):
        return text
    return _MINUS.sub("−", _POWER.sub(_raise_power, tidy(text)))


def _raise_power(found: re.Match[str]) -> str:
    digits, sign, power = found[1].removesuffix(".0"), found[2].replace("+", ""), found[3]
    return "0" if not float(digits) else f"{digits}·10{(sign + power).translate(_RAISED)}"


def mark_terms(text: str, seen: set[str]) -> str:
    """The text as HTML in which the first use of each term carries its explanation.

    >>> mark_terms("Its balances are < 1.", set())[:36], mark_terms("balance", {"balance"})
    ('Its <abbr tabindex="0" title="Of a h', 'balance')
    """
    text = as_prose(text)
    pieces, place = [], 0
    for word in _WORDS.finditer(text):
        term = word[1]
        meaning = TERMS[term]
        if term in seen or meaning in seen:
            continue
        seen |= {term, meaning}
        pieces.append(escape(text[place : word.start()]))
        pieces.append(f'<abbr tabindex="0" title="{escape(meaning)}">{escape(word[0])}</abbr>')
        place = word.end()
    return "".join(pieces) + escape(text[place:])
