"""A network on its way to production, as the demo tells it: trained, exported, batch norms folded, quantised.

The steps are the usual ones, in the fewest lines that do them, so that a reader can see what each one does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.extras import needed
from lawful.formats.queries.data import Data

if TYPE_CHECKING:
    import torch
    from torch import nn

EPOCHS, BATCH, RATE, MOMENTUM = 30, 100, 0.1, 0.8
SLIMMING = 0.03  # what every step takes from the size of every γ: about half of the channels end at exactly 0
EPSILON = 1e-5  # PyTorch's, in every batch norm
OTHER_EPSILON = 1e-3  # that of Keras: what a converter uses that does not read the model's own
LEVELS = 127  # of int8 weights, on either side of 0
NETWORK = """\"\"\"The network of the demo: `lawful same trained.safetensors trained.onnx --model digits_net:digits_net --input 1,8,8`.\"\"\"

from torch import nn


def digits_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
"""  # noqa: E501


def train(data: Data, seed: int) -> nn.Sequential:
    """A convolutional network that reads digits, trained with network slimming (Liu et al. 2017): an L1 penalty on γ.

    The penalty is a proximal step, so that a γ can become exactly 0; that channel then has one value for all images.
    """
    torch = needed("torch")
    place: dict[str, Any] = {}
    exec(compile(NETWORK, "digits_net.py", "exec"), place)  # noqa: S102  # the file that the demo also writes
    torch.manual_seed(seed)
    module: nn.Sequential = place["digits_net"]()
    images, labels = torch.tensor(_images(data.x), dtype=torch.float32), torch.tensor(data.classes)
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    norms = [layer for layer in module if isinstance(layer, torch.nn.BatchNorm2d)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in one order, so that every machine trains the network that the README shows
    try:
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(images)).split(BATCH):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(images[batch]), labels[batch]).backward()
                optimiser.step()
                with torch.no_grad():
                    for norm in norms:
                        norm.weight.copy_(norm.weight.sign() * (norm.weight.abs() - SLIMMING).clamp(min=0))
    finally:
        torch.set_num_threads(threads)
    return module.eval()


def fold_batch_norms(module: nn.Sequential, epsilon: float) -> nn.Sequential:
    """Each batch norm multiplied into the convolution before it: weights γ / √(variance + ε) times as large."""
    torch = needed("torch")
    layers: list[nn.Module] = []
    for layer in module:
        if not isinstance(layer, torch.nn.BatchNorm2d):
            layers.append(_copy(layer))
            continue
        convolution: Any = layers[-1]
        mean, variance = (layer.get_buffer(name).double() for name in ("running_mean", "running_var"))
        scale = layer.weight.double() / torch.sqrt(variance + epsilon)
        with torch.no_grad():
            shift = (convolution.bias.double() - mean) * scale + layer.bias.double()
            convolution.weight.copy_(convolution.weight.double() * scale[:, None, None, None])
            convolution.bias.copy_(shift)
    return torch.nn.Sequential(*layers).eval()  # type: ignore[no-any-return]


def quantise(module: nn.Sequential) -> nn.Sequential:
    """Weights on the 255 values of int8, with one scale for each output channel."""
    torch = needed("torch")
    quantised = torch.nn.Sequential(*(_copy(layer) for layer in module)).eval()
    for layer in quantised:
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
            with torch.no_grad():
                largest = layer.weight.abs().flatten(1).amax(1)
                scale = torch.where(largest == 0, 1.0, largest / LEVELS).reshape(-1, *[1] * (layer.weight.ndim - 1))
                layer.weight.copy_((layer.weight / scale).round() * scale)
    return quantised  # type: ignore[no-any-return]


def write_onnx(module: nn.Sequential, path: Path) -> None:
    """The module as an ONNX file, layer by layer."""
    onnx, torch = needed("onnx"), needed("torch")
    from onnx import helper, numpy_helper

    nodes, tensors, now = [], [], "image"
    for number, layer in enumerate(module):
        kind, parts, settings = _operator(layer, torch.nn)
        names = [f"{number}.{name}" for name in parts]
        tensors += [
            numpy_helper.from_array(layer.state_dict()[name].numpy(), full)
            for name, full in zip(parts, names, strict=True)
        ]
        nodes.append(helper.make_node(kind, [now, *names], [f"x{number}"], name=f"{number}", **settings))
        now = f"x{number}"
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("image", [1, 1, 8, 8]), (now, [1, 10]))
    ]
    graph = helper.make_graph(nodes, "digits", values[:1], values[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="lawful demo")
    model.ir_version = 8
    from lawful.formats.io.writing import write_bytes

    write_bytes(path, model.SerializeToString())


def _operator(layer: Any, kinds: Any) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    if isinstance(layer, kinds.Conv2d):
        return "Conv", ("weight", "bias"), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    if isinstance(layer, kinds.BatchNorm2d):
        return "BatchNormalization", ("weight", "bias", "running_mean", "running_var"), {"epsilon": layer.eps}
    if isinstance(layer, kinds.Linear):
        return "Gemm", ("weight", "bias"), {"transB": 1}
    return type(layer).__name__.replace("ReLU", "Relu"), (), {}


def outputs(module: nn.Sequential, images: np.ndarray[Any, Any]) -> torch.Tensor:
    """What the network gives for images in rows of 64 pixels, in float64."""
    torch = needed("torch")
    twin = torch.nn.Sequential(*(_copy(layer) for layer in module)).double().eval()
    with torch.no_grad():
        return twin(torch.tensor(_images(images)))  # type: ignore[no-any-return]


def read_differently(one: nn.Sequential, two: nn.Sequential, data: Data) -> np.ndarray[Any, Any]:
    """An image in which two networks see different digits: one of the data, or a mixture of two of them.

    Between a 3 and an 8 lies an image that the first network cannot tell apart; there the second one decides otherwise,
    unless both agree to the last bit.
    """
    first, second = (outputs(side, data.x).argmax(1).numpy() for side in (one, two))
    apart = np.flatnonzero(first != second)
    if len(apart):
        return np.asarray(data.x[apart[0]])
    for near in range(1, len(data.x)):
        if first[near] == first[0]:
            continue
        shares = np.linspace(0.0, 1.0, 4097)[:, None]
        between = (1 - shares) * data.x[0] + shares * data.x[near]
        seen = [outputs(side, between).argmax(1).numpy() for side in (one, two)]
        apart = np.flatnonzero(seen[0] != seen[1])
        if len(apart):
            return np.asarray(between[apart[len(apart) // 2]])
    return np.asarray(data.x[0])


def _copy(layer: nn.Module) -> nn.Module:
    from copy import deepcopy

    return deepcopy(layer)


def _images(rows: Any) -> np.ndarray[Any, Any]:
    return np.asarray(rows, dtype=np.float64).reshape(-1, 1, 8, 8)
