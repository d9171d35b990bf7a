"""Two checkpoints of one architecture: what changed between them, and how far that was from gradient flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.api.two_networks import TwoNetworks
from lawful.errors import LawfulError
from lawful.fibers.same import same
from lawful.fibers.verdict import Equal, Verdict
from lawful.formats.queries.data import Data, read_data
from lawful.invariant_set.locks.components import components
from lawful.network import Dag, Mlp, Role
from lawful.network.relaxation import classify
from lawful.result import Shown
from lawful.sentences import checkpoints as lineage
from lawful.sentences.checkpoints import RELATION_WORDS, Relation
from lawful.sources.activity import effective_dimension
from lawful.sources.opening import Model, Source
from lawful.sources.provenance import read_as, with_provenance
from lawful.training.problems.losses import find_loss
from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.checkpoints.relations.block_matching import Correspondence
    from lawful.checkpoints.relations.kinship import Kinship
    from lawful.checkpoints.relations.verdict import Lineage
    from lawful.symmetry.inputs import Input


@dataclass(frozen=True, eq=False)
class Diff(Shown):
    """What lies between two checkpoints A and B.

    `drift` is `B̃θ_B² − B̃θ_A²`, which gradient flow would keep at 0. `decay` is the common factor `c_B ≈ decay · c_A`
    (weight decay multiplies all balances alike) and `decay_residual` what it leaves unexplained. `step` is a lower
    bound on the step of a gradient descent that explains the drift: see `explaining_step`.
    """

    verdict: Verdict
    dag: Dag
    drift: Floats
    relative_drift: float
    decay: float
    decay_residual: float
    flipped: tuple[tuple[str, str], ...]
    crossed: tuple[tuple[str, str], ...]
    died: tuple[str, ...]
    revived: tuple[str, ...]
    losses: tuple[float, float] | None
    step: float | None
    dimensions: tuple[tuple[int, float, float], ...]
    lineage: Lineage | None = None  # None if the functions are equal, or for the `untested` reason
    untested: str = ""

    @property
    def relation(self) -> Relation:
        """How B is related to A, as far as weights tell."""
        if self.verdict.verdict == "equal":
            return "copy"
        return "undecided" if self.lineage is None else self.lineage.relation

    @property
    def word(self) -> str:
        """The relation in the words of the field."""
        return RELATION_WORDS[self.relation]

    @property
    def reason(self) -> str:
        """What that rests on."""
        if isinstance(self.verdict, Equal):
            return lineage.copy(self.verdict.within.kind, self.verdict.within.value)
        return self.untested if self.lineage is None else self.lineage.reason


def diff(
    first: Source,
    second: Source,
    *,
    data: Data | str | Path | None = None,
    loss: str = "mse",
    seconds: float = 10.0,
    model: Model | Any = None,
    model_b: Model | Any = None,
    input: Input | Sequence[Input] | None = None,
    activation: str | None = None,
    order: str | None = None,
) -> Diff | Kinship | Correspondence:
    """Compare two checkpoints of one architecture: what changed, and how far that was from gradient flow.

    How B is related to A is tested either way. Of modules that are large or no graphs of scalar weights, tensors that
    changed are listed; where B has other blocks of A, or in another order, these are named, and of other
    architectures what corresponds is compared.

    >>> from lawful.network import Architecture
    >>> before = Architecture.parse("3-4-1 relu").initialise(seed=0)
    >>> found = diff(before, before.with_theta(0.5 * before.theta))
    >>> found.verdict.verdict, round(found.decay, 6), found.relative_drift > 0.5
    ('different', 0.25, True)
    """
    networks = TwoNetworks(first, second, model, model_b, input, activation, order)
    if data is None and (model_b is not None or networks.are_checkpoints(balances=True)):
        from lawful.api.checkpoints.quantisation import quantisation_words
        from lawful.checkpoints.opening import ApartPair
        from lawful.checkpoints.relations.block_matching import corresponding, other_depth, other_order
        from lawful.checkpoints.relations.kinship import kinship

        pair, readings = networks.checkpoints()
        if isinstance(pair, ApartPair):
            cut = other_depth(pair)
            return read_as(corresponding(pair) if cut is None else cut, *readings)
        related = kinship(pair)
        if words := quantisation_words(pair, networks.first, networks.second):
            related = replace(related, reason=f"{related.reason}; {words}")
        turned = other_order(pair, related)
        return read_as(related if turned is None else turned, *readings)
    graphs = networks.graphs()
    if isinstance(data, (str, Path)):
        data = read_data(Path(data), len(graphs[0].to_dag().inputs))
    return diff_graphs(*graphs, data=data, loss=loss, seconds=seconds)


def diff_graphs(first: Mlp | Dag, second: Mlp | Dag, *, data: Data | None, loss: str, seconds: float) -> Diff:
    """What changed between two networks of layers, or graphs."""
    one, two = first.to_dag(), second.to_dag()
    if one.names != two.names or not (np.array_equal(one.tails, two.tails) and np.array_equal(one.heads, two.heads)):
        raise LawfulError(f"a diff needs two checkpoints of one architecture, not {first} and {second}")
    balances = [dag.hidden_incidence @ dag.theta**2 for dag in (one, two)]
    drift = balances[1] - balances[0]
    scale = float(np.abs(balances[0]).sum()) or 1.0
    decay = float(balances[0] @ balances[1] / max(float(balances[0] @ balances[0]), 1e-300))
    dead = [{one.names[v] for v in np.flatnonzero(classify(dag).dead)} for dag in (one, two)]
    locked = {lock.edge for dag in (one, two) for lock in components(dag).locked}
    flipped = np.flatnonzero(one.theta * two.theta < 0)
    losses = None if data is None else _losses(one, two, data, loss)
    verdict = same(first, second, seconds=seconds)
    lineage, untested = (None, "") if verdict.verdict == "equal" else _lineage(first, second)
    diff = Diff(
        verdict=verdict,
        dag=one,
        drift=drift,
        relative_drift=float(np.abs(drift).sum()) / scale,
        decay=decay,
        decay_residual=float(np.abs(balances[1] - decay * balances[0]).sum()) / scale,
        flipped=tuple(one.edge_name(int(edge)) for edge in flipped),
        crossed=tuple(one.edge_name(int(edge)) for edge in flipped if int(edge) in locked),
        died=tuple(sorted(dead[1] - dead[0])),
        revived=tuple(sorted(dead[0] - dead[1])),
        losses=losses,
        step=None if losses is None else explaining_step(drift, losses[0] - losses[1]),
        dimensions=() if data is None else _dimensions(one, two, data),
        lineage=lineage,
        untested=untested,
    )
    return with_provenance(diff, first, second)


def _lineage(first: Mlp | Dag, second: Mlp | Dag) -> tuple[Lineage | None, str]:
    """The test of a relation, or why there is none."""
    if not (isinstance(first, Mlp) and isinstance(second, Mlp)):
        return None, "of a graph without layers no relation is tested"
    if first.slopes != second.slopes:
        return None, "of networks with different activations no relation is tested"
    if find_spec("torch") is None:
        return None, "a relation is tested with PyTorch, which is not installed"
    from lawful.checkpoints.relations.block_matching import trace_layers

    return trace_layers(first, second), ""


def explaining_step(drift: Floats, decrease: float) -> float | None:
    """The least step η of a gradient descent that lowers the loss by `decrease` and moves the balances by `drift`.

    A step changes the balances by exactly `η² B̃ g²`, because `B̃(θ ⊙ g) = 0`; so `Σ_v |Δc_v| ≤ 2 η² Σ_t ‖g_t‖²`. To
    first order the loss falls by `η Σ_t ‖g_t‖²`, hence `η ≥ Σ_v |Δc_v| / (2 ΔL)`. None if the loss did not fall.
    """
    return float(np.abs(drift).sum()) / (2.0 * decrease) if decrease > 0 else None


def _losses(one: Dag, two: Dag, data: Data, loss: str) -> tuple[float, float] | None:
    """The loss of each checkpoint on the data, if they have targets."""
    kind = find_loss(loss)
    if data.y is None:
        return None
    targets = kind.targets(data.y, len(one.outputs))
    before, after = (kind.value_and_slope(dag.evaluate(data.x), targets)[0] for dag in (one, two))
    return before, after


def _dimensions(one: Dag, two: Dag, data: Data) -> tuple[tuple[int, float, float], ...]:
    """Effective dimension of every hidden layer on the data, in both checkpoints."""
    values = [dag.activations(data.x) for dag in (one, two)]
    layers = [(number, layer[one.roles[layer] == Role.HIDDEN]) for number, layer in enumerate(one.layers)]
    return tuple(
        (number, effective_dimension(values[0][:, nodes]), effective_dimension(values[1][:, nodes]))
        for number, nodes in layers
        if len(nodes)
    )
