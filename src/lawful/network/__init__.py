"""What a network is: graphs, perceptrons, architectures as text, and the files they live in."""

from lawful.network.architecture import Architecture, activation_name, initialise, parse_activation
from lawful.network.dag import Dag, useful_dag
from lawful.network.mlp import Mlp
from lawful.network.protocol import Network
from lawful.network.validity import Role

__all__ = [
    "Architecture",
    "Dag",
    "Mlp",
    "Network",
    "Role",
    "activation_name",
    "initialise",
    "parse_activation",
    "useful_dag",
]
