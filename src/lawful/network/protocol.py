"""What every network has in common, whatever holds its weights."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

from numpy.typing import ArrayLike

from lawful.network.dag import Dag
from lawful.types import Floats


@runtime_checkable
class Network(Protocol):
    """A function of inputs and parameters; `Mlp` and `Dag` are networks.

    >>> from lawful.network import Mlp
    >>> mlp = Mlp([[[1.0]], [[2.0]]])
    >>> isinstance(mlp, Network), isinstance(mlp.to_dag(), Network), mlp.theta.tolist() == mlp.to_dag().theta.tolist()
    (True, True, True)
    """

    @property
    def parameters(self) -> int:
        """Number of parameters."""

    @property
    def theta(self) -> Floats:
        """All parameters as one vector, in the edge order of `to_dag`."""

    def with_theta(self, theta: ArrayLike) -> Self:
        """The same network with other parameters."""

    def evaluate(self, inputs: Any) -> Any:
        """Outputs for a batch (rows)."""

    def to_dag(self) -> Dag:
        """The network as a graph of scalar weights."""
