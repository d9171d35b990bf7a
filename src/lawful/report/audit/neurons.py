"""What an audit decides of the neurons of one graph of scalar weights, all of it there, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lawful.invariant_set.module_graph import as_dag
from lawful.network import Dag, Mlp
from lawful.pruning.removable.dependent_neurons import names_by_layer
from lawful.sentences import audit as says

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.invariant_set.locks.components import Components
    from lawful.invariant_set.singular.spectrum import Singularity
    from lawful.pruning.neurons.prune import Pruning
    from lawful.sources.summary import Summary


@dataclass(frozen=True, eq=False)
class Neurons:
    """The parts of an audit that every graph has, and no other module."""

    network: Mlp | Dag
    summary: Summary
    where: Components
    singularity: Singularity
    pruning: Pruning

    @property
    def dag(self) -> Dag:
        """The graph, with its weights."""
        return as_dag(self.where.dag)

    @cached_property
    def names(self) -> Sequence[str]:
        """Hidden neurons, in the order of their balances."""
        return [self.dag.names[node] for node in self.dag.hidden]

    @cached_property
    def layers(self) -> Sequence[Sequence[str]]:
        """The same, layer by layer."""
        return names_by_layer(self.dag)

    @property
    def hidden(self) -> int:
        """How many there are."""
        return len(self.dag.hidden)

    @property
    def removed(self) -> int:
        """How many can go."""
        return self.pruning.neurons_before - self.pruning.neurons_after

    @property
    def removable(self) -> str:
        """How many can go, and what that keeps."""
        left, parameters = self.pruning.network.parameters, self.summary.parameters
        return says.removable(self.removed, self.summary.hidden, left, parameters, self.pruning.rounding)

    @cached_property
    def gone(self) -> Mapping[str, str]:
        """Neurons that can go, each with the reason."""
        return {name: f"can go ({stage.kind})" for stage in self.pruning.stages for name in stage.removed}

    @cached_property
    def locked(self) -> set[str]:
        """Neurons at an end of a locked weight."""
        ends = [(self.dag.tails[lock.edge], self.dag.heads[lock.edge]) for lock in self.where.locked]
        return {self.dag.names[node] for pair in ends for node in pair}

    @cached_property
    def verdicts(self) -> Mapping[str, str]:
        """Of every hidden neuron: it can go, it is needed, or that was not decided."""
        needed = set(self.pruning.decided.needed) if self.pruning.decided is not None else set()
        return {name: self.gone.get(name, "needed" if name in needed else "not decided") for name in self.names}


def neurons_of(audit: Audit) -> Neurons:
    """The facts about neurons of an audit that has no symmetries: its network is a graph of neurons."""
    facts = (audit.network, audit.summary, audit.components, audit.singularity, audit.pruning)
    return Neurons(*facts)  # type: ignore[arg-type]  # `api.audit.audit` fills in all five
