"""The scalar graph of a program: one for all spellings, by module and by file, with the numbers that are stored."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from program.spellings import NOTHING, WAYS, Spelled, Written
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.sources.modules.convert import from_module
from lawful.sources.onnx.reader import network_of


def by_file(module: nn.Module, *shape: int) -> Mlp | Dag:
    """The network of the module's ONNX file, whose batch is open."""
    held = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = {"x": {0: "batch"}}
        torch.onnx.export(
            module.eval(), (torch.zeros(2, *shape),), held, dynamo=False, input_names=["x"], dynamic_axes=axes
        )
    return network_of(onnx.load_model_from_string(held.getvalue()), Path())


def fields(network: Mlp | Dag) -> dict[str, object]:
    """All that a graph is made of, and whether its edges are the weights."""
    dag = network.to_dag()
    arrays = {name: getattr(dag, name).tolist() for name in ("roles", "tails", "heads", "slopes")}
    reading = network.reading
    assert reading is not None
    told = {"entangled": reading.entangled, "computed": reading.computed, "tail": reading.tail}
    return {
        "kind": type(network),
        "names": dag.names,
        **arrays,
        **told,
        "weights": [float.hex(float(each)) for each in dag.theta],
    }


# The exporter does not know the first three and folds -b; a file leaves open whether a factor or a matrix is trained.
NO_FILE = ("positive", "inner", "chain of products", "minus minus", "sum of products", "times the identity")


@pytest.mark.parametrize("name", [*NOTHING, *WAYS])
def test_spellings_give_one_graph_by_module_and_by_file(name: str) -> None:
    plain = fields(from_module(Spelled("none"), (5,)))
    assert plain["kind"] is Mlp
    assert plain["entangled"] == ()
    module = Spelled(name) if name in NOTHING else Written(name)
    assert fields(from_module(module, (5,))) == plain
    if name not in NO_FILE:
        assert fields(by_file(module, 5)) == plain


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()], ids=repr)
def test_ends_have_one_name_by_module_and_by_file(last: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), last)
    found = [fields(each) for each in (from_module(module), by_file(module, 3))]
    assert found[0] == found[1]
    assert found[0]["tail"] in ("softmax", "log_softmax", "sigmoid")


def test_a_convolution_gives_one_graph_by_module_and_by_file() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.LeakyReLU(0.25), nn.MaxPool2d(2, padding=1), nn.Flatten()]
    module = nn.Sequential(*layers, nn.Linear(8, 2))
    one, two = (fields(each) for each in (from_module(module, (1, 5, 5)), by_file(module, 1, 5, 5)))
    for key in set(one) - {"entangled"}:  # which names the calls of its source
        assert one[key] == two[key], key
    assert one["entangled"]
    assert two["entangled"]


def file_of(*nodes: onnx.NodeProto, **tensors: np.ndarray) -> Mlp | Dag:
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N", 3] if name == "x" else None) for name in "xy"]
    held = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(list(nodes), "g", ends[:1], ends[1:], held)
    return network_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), Path())


def test_numbers_are_those_that_are_stored() -> None:
    """Two linear maps in a row are not multiplied: every edge is one stored float."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(3, 4)) * 1e9, rng.normal(size=(4, 2)) * 1e-9
    found = file_of(
        helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"]), a=one, b=two
    )
    assert isinstance(found, Mlp)
    assert (found.slopes, [each.tolist() for each in found.weights]) == ((1.0,), [one.T.tolist(), two.T.tolist()])
    assert found.reading is not None
    assert (found.reading.entangled, found.reading.computed) == ((), False)


def test_a_written_leaky_relu_is_one_neuron_and_a_product_of_it_is_none_the_less() -> None:
    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.a(x)
            return self.b(torch.relu(h) - 0.3 * torch.relu(-h))

    found = from_module(Leaky())
    assert isinstance(found, Mlp)
    assert (found.widths, found.slopes) == ((3, 4, 2), (0.3,))


def test_one_side_of_a_leaky_relu_may_be_used_alone_before() -> None:
    """Then there are neurons of both kinds, in whatever order they are asked for."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(3, 3)) for name in "abc"}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["z"]),
        helper.make_node("Relu", ["z"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["p"]),
        helper.make_node("Relu", ["p"], ["s"]),
        helper.make_node("LeakyRelu", ["z"], ["l"], alpha=0.25),
        helper.make_node("Add", ["s", "l"], ["t"]),
        helper.make_node("MatMul", ["t", "c"], ["u"]),
        helper.make_node("Neg", ["z"], ["n"]),
        helper.make_node("LeakyRelu", ["n"], ["m"], alpha=0.5),
        helper.make_node("Abs", ["n"], ["v"]),
        helper.make_node("Sum", ["u", "m", "v", "r"], ["y"]),
    ]
    found = file_of(*nodes, **weights)
    x = rng.normal(size=(20, 3))
    z = x @ weights["a"]
    r = np.maximum(z, 0)
    u = (np.maximum(r @ weights["b"], 0) + np.where(z > 0, z, z / 4)) @ weights["c"]
    expected = u + np.where(-z > 0, -z, -z / 2) + np.abs(z) + r
    assert np.abs(found.evaluate(x) - expected).max() < 1e-12


class Written3(nn.Module):
    """One of a few functions whose training is not that of the graph's edges, or that are no graph."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.a, self.b, self.way = nn.Linear(3, 3), nn.Linear(3, 3, bias=False), way
        self.shift = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.a(x))
        return {
            "a bias before a matrix": lambda: self.b(h + self.shift),
            "two biases": lambda: self.a(h) + self.shift + self.b.weight[0],
            "a product": lambda: self.b(h * 2.0),
            "a negated weight": lambda: -self.b(h),
            "a transposed square": lambda: h @ self.b.weight,
            "the outputs are neurons": lambda: torch.relu(self.b(h)),
            "a scaled weight": lambda: h @ (2 * self.b.weight),
        }[self.way]()


@pytest.mark.parametrize(
    "way", ["a bias before a matrix", "two biases", "a product", "a negated weight", "the outputs are neurons",
            "a scaled weight"],
)  # fmt: skip
def test_edges_that_are_not_the_parameters_one_by_one_are_said(way: str) -> None:
    found = from_module(Written3(way))
    assert found.reading is not None
    assert found.reading.entangled


def test_a_transposed_weight_is_the_same_parameters() -> None:
    found = from_module(Written3("a transposed square"))
    assert found.reading is not None
    assert found.reading.entangled == ()


class Refused(nn.Module):
    def __init__(self, call: str) -> None:
        super().__init__()
        self.layer, self.call = nn.Linear(2, 2), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return {
            "mean of the batch": lambda: h - h.mean(0),
            "mixed": lambda: h.flip(0),
            "rounded": lambda: h.round(),
            "compared": lambda: (h > 0).float(),
            "whole": lambda: h.long(),
            "tanh": lambda: torch.tanh(h),
            "a gate": lambda: h * torch.sigmoid(h),
            "samples differ": lambda: h + torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
            "weights after the end": lambda: self.layer(torch.softmax(h, 1)),
            "norm": lambda: h / h.norm(dim=1, keepdim=True),
            "log of a softmax and more": lambda: torch.relu(torch.log_softmax(h, 1)),
        }[self.call]()


@pytest.mark.parametrize(
    "call",
    ["mean of the batch", "mixed", "rounded", "compared", "whole", "tanh", "a gate", "samples differ",
     "weights after the end", "norm", "log of a softmax and more"],
)  # fmt: skip
def test_what_is_no_scalar_graph_is_refused(call: str) -> None:
    with pytest.raises(Unsupported) as caught:
        from_module(Refused(call))
    assert "\n" not in str(caught.value)


def test_a_size_that_the_file_fixes_is_not_taken_for_the_batch() -> None:
    """A reshape to two, three or four rows keeps a batch of just that size apart, and no other."""
    for rows in (2, 3, 4):
        nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Reshape", ["h", "s"], ["y"])]
        with pytest.raises(LawfulError, match="batch"):
            file_of(*nodes, a=np.ones((3, rows)), s=np.array([rows, -1]))


def test_a_dropout_in_training_is_never_cut_off() -> None:
    with pytest.raises(LawfulError, match="Dropout in training"):
        file_of(
            helper.make_node("MatMul", ["x", "a"], ["h"]),
            helper.make_node("Dropout", ["h", "r", "t"], ["y"]),
            a=np.ones((3, 2)),
            r=np.array(0.5),
            t=np.array(True),
        )
