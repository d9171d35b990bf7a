"""A digits network on its way to production: one step of the conversion is wrong, and lawful says which one."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.extras import needed
from lawful.formats.queries.data import Data
from lawful.network import Mlp
from lawful.outward import at_most
from lawful.result import Shown
from lawful.types import Floats

if TYPE_CHECKING:
    from torch import nn

    from lawful.api.audit import Audit

HIDDEN, EPOCHS, STEP, STRENGTH = 32, 600, 0.5, 0.015
TRAINED_ON = 1400  # of the 1797 digits
ROUNDING = 1e-6  # folding stores float32, which rounds each weight by up to 6e-8 of its size, a few times
SECONDS = 5.0  # for the bound on what int8 changes: more only tightens it


@dataclass(frozen=True)
class ConversionStep:
    """One step of the conversion: what was asked about it, how, and what the answer proves."""

    name: str
    command: str
    verdict: str  # same, different, bounded or undecided
    answer: str  # in a line
    certificate: str = ""  # its file, for `lawful verify`

    @property
    def passed(self) -> bool:
        """Whether the step did what it should."""
        return self.verdict in ("same", "bounded")


@dataclass(frozen=True, eq=False)
class Demo(Shown):
    """The steps from a trained network to a small one, the step that was wrong, and the image that proves it."""

    data: Data
    unseen: Data
    steps: tuple[ConversionStep, ...]
    image: Floats
    read_as: tuple[int, int]  # the digit that the networks before and after the wrong step see in the image
    gap: tuple[float, float]  # the outputs for it differ by at least and at most this much
    audit: Audit
    channels: tuple[int, int]
    parameters: tuple[int, int]
    accuracy: tuple[float, float, float]  # on digits not trained on: trained, wrongly folded, pruned
    folder: Path

    @property
    def wrong(self) -> tuple[ConversionStep, ...]:
        """The steps that changed the network."""
        return tuple(step for step in self.steps if not step.passed)

    @property
    def proved(self) -> bool:
        """Whether exactly the planted mistake was found, and everything else certified."""
        return [step.verdict for step in self.steps] == ["same", "different", "same", "bounded", "same"]


def demo(seed: int = 0, out: str | Path | None = None) -> Demo:
    """Train a network that reads digits and take it through a conversion of which one step is wrong.

    Its files are left in the folder `out`, if one is given.
    """
    place: Any = nullcontext(out) if out is not None else TemporaryDirectory()
    needed("sklearn.datasets"), needed("torch"), needed("onnx")
    with place as folder:
        return _story(Path(folder), seed)


def _story(folder: Path, seed: int) -> Demo:
    from lawful.api import conversion
    from lawful.api.module_audit import audit_module
    from lawful.sources.checkpoints.save import write_weights

    train, unseen = digits(seed)
    folder.mkdir(parents=True, exist_ok=True)
    trained = conversion.train(train, seed)
    wrong = conversion.fold_batch_norms(trained, conversion.OTHER_EPSILON)
    folded = conversion.fold_batch_norms(trained, conversion.EPSILON)
    networks = {"trained": trained, "folded-wrong": wrong, "folded": folded, "int8": conversion.quantise(folded)}
    for name, module in networks.items():
        conversion.write_onnx(module, folder / f"{name}.onnx")
    write_weights(trained.state_dict(), folder / "trained.safetensors")
    (folder / "digits_net.py").write_text(conversion.NETWORK, encoding="utf-8")
    steps = [
        _same("export to ONNX", folder, "trained.safetensors", "trained.onnx", trained),
        _same("fold batch norms", folder, "trained.onnx", "folded-wrong.onnx"),
        _same("fold again, with the model's own ε", folder, "trained.onnx", "folded.onnx"),
        _bound_rounding(folder),
    ]
    image = conversion.read_differently(trained, wrong, unseen)
    step, gone, parameters = _prune_channels(folder)
    read = [int(conversion.outputs(module, image).argmax()) for module in (trained, wrong)]
    right = [_accuracy(module, unseen) for module in (trained, wrong)]
    report = audit_module(_module(folder / "folded.onnx"), (1, 8, 8), source="folded.onnx")
    after = _accuracy_of_file(folder / "pruned.onnx", unseen)
    return Demo(
        train, unseen, (*steps, step), image, (read[0], read[1]), _gap(folder, image), report, gone, parameters,
        (right[0], right[1], after), folder,
    )  # fmt: skip


def _same(name: str, folder: Path, first: str, second: str, module: nn.Sequential | None = None) -> ConversionStep:
    """Are the networks before and after a step the same function? With a certificate."""
    from lawful.api.same import same

    reading = "" if module is None else " --model digits_net:digits_net --input 1,8,8"
    proof = f"{Path(second).stem}.json"
    command = f"lawful same {first} {second} --tolerance 1e-6{reading}"
    size = None if module is None else (1, 8, 8)
    verdict = same(folder / first, folder / second, model=module, input=size, tolerance=ROUNDING)
    answer = str(verdict).splitlines()[0]
    if verdict.evidence is None:
        return ConversionStep(name, command, "undecided", answer)
    _write(folder / proof, verdict.certificate())
    return ConversionStep(
        name, f"{command} -c {proof}", {"equal": "same"}.get(verdict.verdict, verdict.verdict), answer, proof
    )


def _bound_rounding(folder: Path) -> ConversionStep:
    """What rounding to int8 changes, for every image."""
    from lawful.api.two_networks import TwoNetworks
    from lawful.bounds.distance import distance
    from lawful.bounds.result import certificate

    networks = TwoNetworks(folder / "folded.onnx", folder / "int8.onnx").graphs(drop_useless=True)
    bound = distance(*networks, (np.zeros(64), np.ones(64)), seconds=SECONDS)
    _write(folder / "int8.json", certificate(bound, *networks))
    command = f"lawful distance folded.onnx int8.onnx --box 0,1 --seconds {SECONDS:g} -c int8.json"
    answer = f"no image moves an output by more than {at_most(bound.upper, 3)}"
    return ConversionStep(
        "int8 weights", command, "bounded" if bound.upper < np.inf else "undecided", answer, "int8.json"
    )


def _gap(folder: Path, image: Floats) -> tuple[float, float]:
    """How far the outputs before and after the wrong step are apart at the image, in rational arithmetic."""
    from lawful.api.two_networks import TwoNetworks
    from lawful.bounds.distance import distance

    networks = TwoNetworks(folder / "trained.onnx", folder / "folded-wrong.onnx").graphs(drop_useless=True)
    gap = distance(*networks, (image, image))
    return float(gap.lower), float(gap.upper)


def _prune_channels(folder: Path) -> tuple[ConversionStep, tuple[int, int], tuple[int, int]]:
    """The channels that every image leaves at one value, taken out; with a certificate."""
    from lawful.api.prune import by_channels
    from lawful.formats.io.writing import write_bytes
    from lawful.pruning.channels.certificate import certificate
    from lawful.sources.opening import open

    source = folder / "folded.onnx"
    pruning: Any = by_channels(source, lambda: open(source)).prune(certified=True)  # type: ignore[union-attr]
    write_bytes(folder / "pruned.onnx", pruning.model.SerializeToString())
    _write(folder / "pruned.json", certificate(pruning))
    command = "lawful prune folded.onnx -o pruned.onnx -c pruned.json"
    channels = pruning.channels_before, pruning.channels_after
    answer = f"{channels[0] - channels[1]} of {channels[0]} channels have one value for every image"
    step = ConversionStep("prune channels", command, "same", answer, "pruned.json")
    return step, channels, (pruning.parameters_before, pruning.parameters_after)


def _write(path: Path, certificate: Any) -> None:
    import json

    from lawful.formats.io.writing import write_text

    write_text(path, json.dumps(certificate, allow_nan=False) + "\n")


def _module(path: Path) -> nn.Module:
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import module_behind, open

    network = open(path)
    return network.module if isinstance(network, ModuleNetwork) else module_behind(network.reading)  # type: ignore[return-value]


def _accuracy(module: nn.Sequential, data: Data) -> float:
    from lawful.api.conversion import outputs

    return float(np.mean(outputs(module, data.x).argmax(1).numpy() == data.y))


def _accuracy_of_file(path: Path, data: Data) -> float:
    from lawful.sources.opening import open_graph

    return accuracy(open_graph(path), data)


def digits(seed: int) -> tuple[Data, Data]:
    """Images of 8 by 8 pixels from 0 to 1 with labels 0 to 9: a training and a test set."""
    images, labels = needed("sklearn.datasets").load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    parts = order[:TRAINED_ON], order[TRAINED_ON:]
    first, second = (Data(images[part] / 16.0, labels[part].astype(np.float64)) for part in parts)
    return first, second


def train_singular(data: Data, seed: int, strength: float = STRENGTH) -> Mlp:
    """Gradient descent on the cross-entropy with proximal steps of the nuclear norm, in a few seconds."""
    torch = needed("torch")
    from lawful.pruning.trainer import SingularTrainer
    from lawful.sources.modules.convert import from_module

    torch.manual_seed(seed)
    layers = torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10)
    model = torch.nn.Sequential(*layers).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP)
    loss = torch.nn.CrossEntropyLoss()
    trainer = SingularTrainer(model, optimiser, loss, strength=strength, every=5, proximal=True)
    batch = torch.tensor(data.x), torch.tensor(data.classes)
    for _ in range(EPOCHS):
        trainer.step(*batch)
    return Mlp.from_dag(from_module(model).to_dag())


def readings(network: object, images: Floats) -> Floats:
    """The digit that the network sees in each image."""
    return np.asarray(network.evaluate(images).argmax(axis=1))  # type: ignore[attr-defined]


def accuracy(network: object, data: Data) -> float:
    """Share of images that are read correctly."""
    return float(np.mean(readings(network, data.x) == data.y))
