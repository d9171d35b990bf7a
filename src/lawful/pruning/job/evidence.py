"""What data that chose nothing say of a smaller network: exact intervals of confidence, never a proof.

Held-out samples are taken to be independent draws of the inputs that matter. Then the number of unchanged labels is
binomial, and Clopper and Pearson's interval (1934) holds for any distribution of inputs; the k-th largest of n changes
bounds a quantile the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from lawful.errors import LawfulError
from lawful.types import Indices

CONFIDENCE = 0.95
OUTLIERS = 0.01  # the share of inputs that the bound on changes leaves out


@dataclass(frozen=True)
class HeldOutAgreement:
    """On `samples` held-out samples: labels unchanged, changes of outputs, accuracy; `confidence` is one-sided.

    `at_least` bounds the share of inputs whose label does not change, from below. `change_at_most` bounds the largest
    change of an output for all but `OUTLIERS` of inputs; None if there are too few samples to say so. `accuracy` is
    before and after, with `accuracy_lost_at_most` bounding the loss.
    """

    samples: int
    unchanged: int | None
    at_least: float | None
    largest_change: float
    change_at_most: float | None
    accuracy: tuple[float, float] | None = None
    accuracy_lost_at_most: float | None = None
    confidence: float = CONFIDENCE


def agree(
    before: torch.Tensor, after: torch.Tensor, labels: Indices | None = None, classes: int | None = None
) -> HeldOutAgreement:
    """Compare outputs sample by sample: their first `classes` columns (by default all of a matrix) score labels.

    With 0 classes, and without a matrix, there are no labels, and changes alone are compared.
    """
    if before.shape != after.shape or not len(before):
        raise LawfulError("outputs of two networks are compared on the same samples, at least one")
    count = len(before)
    changes = np.sort((before - after).abs().reshape(count, -1).amax(1).double().numpy())
    top = largest_rank(count)
    above = None if top is None else float(changes[top - 1])
    if classes is None:
        classes = before.shape[1] if before.dim() == 2 and before.shape[1] > 1 else 0
    if not classes:
        return HeldOutAgreement(count, None, None, float(changes[-1]), above)
    one, two = before[:, :classes].argmax(1), after[:, :classes].argmax(1)
    unchanged = int((one == two).sum())
    right: tuple[float, float] | None = None
    lost: float | None = None
    if labels is not None:
        truth = torch.as_tensor(labels)
        was, now = one == truth, two == truth
        right = (float(was.double().mean()), float(now.double().mean()))
        lost = accuracy_loss(int((was & ~now).sum()), int((~was & now).sum()), count)
    return HeldOutAgreement(count, unchanged, clopper_pearson(unchanged, count), float(changes[-1]), above, right, lost)


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The largest p that so many successes or more would have probability 1 − confidence under: a lower bound of p.

    >>> round(clopper_pearson(299, 299), 4)  # 0.05 ** (1 / 299): the rule of three
    0.99
    >>> clopper_pearson(0, 10)
    0.0
    """
    if not 0 <= successes <= trials or trials < 1:
        raise LawfulError(f"{successes} of {trials} is no number of successes")
    if successes == 0:
        return 0.0
    quantile = float(stats.beta.ppf(1 - confidence, successes, trials - successes + 1))
    return float(np.nextafter(quantile * (1 - 1e-12), 0.0))  # the quantile is a float: rounded down


def largest_rank(samples: int, outliers: float = OUTLIERS, confidence: float = CONFIDENCE) -> int | None:
    """Which of so many sorted values bounds all but a share of the distribution; None if even the largest does not.

    The k-th smallest is below the quantile 1 − q only if at least k of n values are: that is binomial.

    >>> largest_rank(298), largest_rank(299)
    (None, 299)
    """
    rank = int(stats.binom.ppf(confidence, samples, 1 - outliers)) + 1
    return rank if rank <= samples else None


def accuracy_loss(lost: int, gained: int, samples: int, confidence: float = CONFIDENCE) -> float:
    """A bound on P(right before, wrong after) − P(wrong before, right after): each by Clopper and Pearson at half."""
    half = 1 - (1 - confidence) / 2
    above = 1 - clopper_pearson(samples - lost, samples, half)
    below = clopper_pearson(gained, samples, half)
    return math.nextafter(above - below, 1.0)
