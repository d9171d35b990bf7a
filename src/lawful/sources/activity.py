"""What the neurons of a network do on a data set, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.formats.queries.data import Data
from lawful.network.dag import Dag
from lawful.network.validity import Role
from lawful.types import Floats


@dataclass(frozen=True)
class Truncated:
    """How many samples of a class leave a layer whole, in part, or not at all (every ReLU of the layer is 0)."""

    label: str
    untruncated: int
    partially: int
    fully: int


@dataclass(frozen=True)
class LayerActivity:
    """One hidden layer on the data: neurons that never or always fire, truncated samples, effective dimension."""

    layer: int
    width: int
    never: tuple[str, ...]
    always: tuple[str, ...]
    truncated: tuple[Truncated, ...]
    dimension: float


def activity(dag: Dag, data: Data) -> tuple[LayerActivity, ...]:
    """Look at every hidden layer of ReLU neurons on a data set.

    >>> from lawful.network.mlp import Mlp
    >>> net = Mlp([[[1.0], [-1.0], [1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -9.0], None]).to_dag()
    >>> (layer,) = activity(net, Data(np.array([[1.0], [2.0], [-3.0]])))
    >>> layer.never, layer.always, layer.truncated
    (('h1.2',), (), (Truncated(label='all', untruncated=0, partially=3, fully=0),))
    """
    values = dag.activations(data.x)
    labels = data.classes
    layers = []
    for number, layer in enumerate(dag.layers):
        nodes = layer[(dag.roles[layer] == Role.HIDDEN) & (dag.slopes[layer] == 0)]
        if len(nodes):
            firing = values[:, nodes] > 0
            groups = [("all", np.ones(len(data.x), dtype=bool))]
            if labels is not None and len(np.unique(labels)) <= 20:
                groups = [(str(label), labels == label) for label in np.unique(labels)]
            layers.append(
                LayerActivity(
                    layer=number,
                    width=len(nodes),
                    never=tuple(dag.names[v] for v in nodes[~firing.any(axis=0)]),
                    always=tuple(dag.names[v] for v in nodes[firing.all(axis=0)]),
                    truncated=tuple(_truncated_share(label, firing[chosen]) for label, chosen in groups),
                    dimension=effective_dimension(values[:, nodes]),
                )
            )
    return tuple(layers)


def _truncated_share(label: str, firing: NDArray[np.bool_]) -> Truncated:
    whole, gone = firing.all(axis=1), ~firing.any(axis=1)
    return Truncated(label, int(whole.sum()), int((~whole & ~gone).sum()), int(gone.sum()))


def effective_dimension(values: Floats) -> float:
    """The participation ratio `(Σλ)² / Σλ²` of the eigenvalues λ of the covariance: k for k equal directions.

    >>> float(effective_dimension(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])))
    2.0
    """
    centred = values - values.mean(axis=0)
    gram = centred.T @ centred if centred.shape[1] <= len(centred) else centred @ centred.T
    total = float(np.trace(gram))
    return total**2 / float((gram**2).sum()) if total > 0 else 0.0
