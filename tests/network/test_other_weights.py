"""A network made of another one with new weights is asked about by itself: the module that was read is not it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import lawful
from lawful.conservation.count import count_laws
from lawful.conservation.near_random_weights import training_laws
from lawful.network import Dag, Mlp
from lawful.network.architecture import initialise
from lawful.sources.opening import open as open_network
from lawful.sources.opening import open_trained


def degenerate() -> nn.Sequential:
    """5-6-3 with a constant neuron and a duplicate: near its weights training has more laws than near random ones."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        module[0].weight[1] = 0
        module[0].weight[3] = 2 * module[0].weight[2]
        module[0].bias[3] = 2 * module[0].bias[2]
    return module


def test_laws_near_random_weights_are_not_those_near_the_modules_own() -> None:
    count = count_laws(degenerate(), input_shape=(5,))
    assert count.dag is not None
    drawn = initialise(count.dag, "torch", 1)
    bare = Dag(drawn.names, drawn.roles, drawn.tails, drawn.heads, drawn.theta, drawn.slopes)
    assert count_laws(drawn, level="near").laws == count_laws(bare, level="near").laws == 6
    near = training_laws(count)
    assert near is not None
    assert near.near[6] == 7  # all but the module's own weights


@pytest.mark.parametrize("layered", [True, False])
def test_changed_weights_forget_the_module(layered: bool) -> None:
    module = degenerate()
    network = open_network(module, input_shape=(5,))
    assert isinstance(network, Mlp)
    read: Mlp | Dag = network if layered else network.to_dag()
    assert open_trained(read) is module
    changed = read.with_theta(np.arange(read.parameters) / 64)
    assert open_trained(changed) is changed
    assert changed.reading is not None
    assert changed.reading.format == "module"  # it still says where the architecture comes from


def test_a_pruned_network_is_asked_about_by_itself() -> None:
    pruned = lawful.prune(degenerate(), input=(5,)).network
    assert lawful.laws(pruned).parameters == pruned.parameters == 39
