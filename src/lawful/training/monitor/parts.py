"""Which parts of a PyTorch module have balance laws: layers joined by positively homogeneous activations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lawful.sources.modules.layers import LAYERS, layer_links
from lawful.sources.modules.trained_field import has_hooks
from lawful.training.monitor.gradient_check import Tensors

AGREEMENT = 1e-4  # of terms that must cancel: they do to 1e-12, or 1e-5 in modules that compute in single precision
OTHERWISE = "training does not follow the gradient of what it computes"


@dataclass(frozen=True, eq=False)
class Joint:
    """A layer of hidden units: what writes them, what reads them, and whether a kink stands between."""

    name: str
    reader: str
    below: Any  # nn.Linear or a convolution
    above: Any
    units: int
    kinked: bool

    @property
    def parameters(self) -> set[str]:
        """Names of the parameters that its balances tie."""
        biases = {f"{self.name}.bias"} if self.below.bias is not None else set()
        return {f"{self.name}.weight", f"{self.reader}.weight"} | biases

    @torch.no_grad()
    def sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of squares of the weights into and out of each unit."""
        weight, bias = self.below.weight, self.below.bias
        into = torch.linalg.vector_norm(weight.flatten(1), dim=1, dtype=torch.float64).square()
        if bias is not None:
            into = into + bias.double().square()
        readers = self.above.weight.double().square().sum(0)  # faster than a norm over a strided dimension
        return into, readers.reshape(self.units, -1).sum(1)

    def kept_along(self, theta: Tensors, slope: Tensors, prefix: str = "") -> bool:
        """Whether `Σ_in θ·g = Σ_out θ·g` at every unit: then a step along g keeps the balance, to first order.

        Names of parameters are those of the submodule at `prefix`.
        """
        below, above = self.name.removeprefix(prefix), self.reader.removeprefix(prefix)
        into = (theta[f"{below}.weight"] * slope[f"{below}.weight"]).flatten(1)
        if self.below.bias is not None:
            into = torch.cat([into, (theta[f"{below}.bias"] * slope[f"{below}.bias"])[:, None]], dim=1)
        out = theta[f"{above}.weight"] * slope[f"{above}.weight"]
        out = out.reshape(len(out), self.units, -1).transpose(0, 1).flatten(1)
        terms = torch.cat([into, -out], dim=1)
        return bool((terms.sum(1).abs() <= AGREEMENT * terms.abs().sum(1)).all())


@dataclass(frozen=True, eq=False)
class Parts:
    """The joints of a module, grouped into maximal chains of layers, and what is not understood, with the reason."""

    joints: tuple[Joint, ...]
    chains: tuple[tuple[str, ...], ...]
    ignored: tuple[tuple[str, str], ...]

    def without(self, names: Collection[str], why: str) -> Parts:
        """The same but for the joints of these layers."""
        kept = [joint for joint in self.joints if joint.name not in names]
        chains = _chains(kept)
        inside = {name for chain in chains for name in chain}
        left = [name for chain in self.chains for name in chain if name not in inside]
        return Parts(tuple(kept), chains, (*self.ignored, *((name, why) for name in left)))

    def __str__(self) -> str:
        lines = ["understood: " + " - ".join(chain) for chain in self.chains] or ["understood: nothing"]
        return "\n".join(
            lines + [f"not understood: {name or 'the module itself'} ({why})" for name, why in self.ignored]
        )


def understand(module: nn.Module) -> Parts:
    """Find every joint: unit u's balance `Σ in² − Σ out²` is conserved if u reaches only homogeneous, unit-wise steps.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1))
    >>> print(understand(net))
    understood: 0 - 2
    not understood: 3 (LayerNorm)
    not understood: 5 (not joined to another layer)
    """
    refused = _refusals(module)
    reasons: dict[str, str] = {}
    joints = []
    for name, reader, kinked, why in layer_links(module):
        below: Any = module.get_submodule(name)
        if why is None and reader in refused:
            why = f"its reader {reader} {refused[reader]}"
        if name in refused or why is not None or reader is None:
            reasons[name] = refused.get(name) or why or "not joined to another layer"
            continue
        above: Any = module.get_submodule(reader)
        units = len(below.weight)
        if above.weight.shape[1] % units:
            reasons[name] = f"its {units} units do not divide the inputs of {reader}"
            continue
        joints.append(Joint(name, reader, below, above, units, kinked))
    chains = _chains(joints)
    inside = {name for chain in chains for name in chain}
    ignored = []
    for name, child in module.named_modules():
        if name not in inside and any(True for _ in child.parameters(recurse=False)):
            kind = "not joined to another layer" if isinstance(child, LAYERS) else type(child).__name__
            ignored.append((name, refused.get(name) or reasons.get(name) or kind))
    return Parts(tuple(joints), chains, tuple(ignored))


def _refusals(module: nn.Module) -> dict[str, str]:
    """Layers whose weights are not free parameters of their own."""
    layers = {name: child for name, child in module.named_modules() if isinstance(child, LAYERS)}
    owners = Counter(id(value) for child in module.modules() for value in child.parameters(recurse=False))
    found = {}
    for name, layer in layers.items():
        own = dict(layer.named_parameters(recurse=False))
        if "weight" not in own:
            found[name] = "has a parametrised weight"
        elif not all(value.requires_grad for value in own.values()):
            found[name] = "is frozen"
        elif any(owners[id(value)] > 1 for value in own.values()):
            found[name] = "shares its weight"
        elif getattr(layer, "groups", 1) != 1:
            found[name] = "is a grouped convolution"
        elif any(has_hooks(value) for value in own.values()):
            found[name] = "has a hook that may change its gradient"
    return found


def _chains(joints: list[Joint]) -> tuple[tuple[str, ...], ...]:
    following = {joint.name: joint.reader for joint in joints}
    starts = [name for name in following if name not in following.values()]
    chains = []
    for name in starts:
        chain = [name]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        chains.append(tuple(chain))
    return tuple(chains)
