"""An architecture ready for comparison: its module, what can be folded in it, and the group that acts on the rest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from lawful.checkpoints.align.lazy_tensors import folded_tensors
from lawful.checkpoints.group.spaces import OrbitGroup
from lawful.checkpoints.rewrite.folds import Fold, State, apply_folds
from lawful.errors import InvalidNetwork, Unsupported
from lawful.program.domains.streamed import StreamedRun, evaluate_beside
from lawful.program.frontends.export import ExportedModule
from lawful.program.frontends.torch_export import read_exported
from lawful.program.program import Program
from lawful.sources.modules.functional_call import call_with
from lawful.symmetry.check import random_inputs, tensors_in

# Numbers that are none are found before anything is done with the others.


def check_numbers(state: Mapping[str, torch.Tensor], which: str) -> None:
    """Refuse NaN and infinities, by name."""
    for name, tensor in state.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        ends = torch.stack(torch.aminmax(tensor.detach()))  # NaN if any number is
        if not bool(torch.isfinite(ends).all()):
            raise InvalidNetwork(f"{which}: {name} holds NaN or infinite numbers")


def replay_beside(
    program: Program,
    runs: Sequence[tuple[Mapping[str, torch.Tensor], Sequence[torch.Tensor]]],
    kind: torch.dtype = torch.float64,
) -> list[list[torch.Tensor]]:
    """The outputs of several runs, each with tensors and inputs of its own, carried out beside each other.

    `kind`: in what it is carried out; float64 unless rounding does not matter.
    """
    with torch.no_grad(), _nothing_random():
        outputs = evaluate_beside(program, [StreamedRun(*run) for run in runs], kind)
    return [[tensor.double() for tensor in tensors] for tensors in outputs]


@contextmanager
def _nothing_random() -> Iterator[None]:
    """Refuse what draws random numbers: two runs differ then, and say nothing of two functions."""
    with torch.random.fork_rng(devices=[]):
        before = torch.random.get_rng_state()
        yield
        if not torch.equal(before, torch.random.get_rng_state()):
            raise Unsupported("the module draws random numbers in eval mode (dropout that is always on, or noise)")


MANY_NUMBERS = 2**25  # parameters from which a module is large: 256 MiB in float64, and several copies are at work


@dataclass(frozen=True, eq=False)
class CheckpointArchitecture:
    """What two checkpoints of one architecture have in common."""

    module: nn.Module
    exported: ExportedModule
    program: Program | None  # None where its calls cannot be carried out one by one
    inputs: tuple[torch.Tensor, ...]
    folds: tuple[Fold, ...]
    group: OrbitGroup
    tolerance: float
    notes: tuple[str, ...]
    virtual: tuple[Fold, ...] = ()  # the first folds, of tensors that another way to write it has beside its own
    unsettled: tuple[str, ...] = ()  # settings in which two modules differ that may matter at other sizes of inputs
    unread: tuple[str, ...] = ()  # what the source computes besides, so that neither verdict would be about it

    def state(self, stored: Mapping[str, torch.Tensor] | None = None) -> State:
        """The tensors of the module (or of a state dict that fits it), each under the first of its names."""
        named = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        names = self.module.state_dict(keep_vars=True)
        tensors = {}
        for name, tensor in named.items():
            source: torch.Tensor = tensor
            if stored is not None:
                alias = next(
                    (other_name for other_name, other in names.items() if other is tensor and other_name in stored),
                    None,
                )
                source = stored[name] if name in stored else tensor if alias is None else stored[alias]
            tensors[name] = source.detach()
        return tensors

    @property
    def returns_more(self) -> bool:
        """Whether its outputs are the first tensor alone of what the module returns, as for folders of `transformers`.

        What this tensor does not read may be read by another, as the pooler of BERT is.
        """
        return hasattr(type(self.module), "family")

    @property
    def large(self) -> bool:
        """Whether its tensors should not all be in memory at once."""
        return _large(self.module)

    def replays(
        self,
        state: Mapping[str, torch.Tensor],
        many: Sequence[Sequence[torch.Tensor]],
        kind: torch.dtype = torch.float64,
    ) -> list[list[torch.Tensor]]:
        """The outputs for several inputs of the examples' sizes, in float64 throughout if there is a program (or
        in what is asked for).

        Its tensors are fetched one by one then.
        """
        return self.beside([(state, inputs) for inputs in many], kind)

    def beside(
        self,
        runs: Sequence[tuple[Mapping[str, torch.Tensor], Sequence[torch.Tensor]]],
        kind: torch.dtype = torch.float64,
    ) -> list[list[torch.Tensor]]:
        """The same for states and inputs, all of them beside each other."""
        if self.program is None:
            return [self.outputs(state, inputs) for state, inputs in runs]
        if self.virtual:
            known = {id(state): folded_tensors(state, self.virtual) for state, _ in runs}
            runs = [(known[id(state)], inputs) for state, inputs in runs]
        return replay_beside(self.program, runs, kind)

    def outputs(self, state: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the module computes with these tensors, in float64; by its graph, where only that can."""
        wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
        wide = apply_folds(wide, self.virtual) if self.virtual else wide
        with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(0)
            try:
                result = call_with(self.module, wide, tuple(inputs))
            except RuntimeError as error:  # an operation without float64
                fits = [tensor.shape for tensor in inputs] == [tensor.shape for tensor in self.inputs]
                if self.program is None or not fits:
                    raise Unsupported(f"the module does not compute in float64: {error}") from None
                return replay_beside(self.program, [(wide, inputs)])[0]
        return [tensor.double() for tensor in tensors_in(result)]

    def draw_inputs(self, seed: int) -> list[torch.Tensor]:
        """Random inputs of the right sizes and kinds."""
        return random_inputs(list(self.inputs), self.exported, torch.Generator().manual_seed(seed))


def read_program(module: nn.Module, exported: ExportedModule) -> Program | None:
    """What a traced module computes, with all that a checkpoint holds as leaves; None if it is not made of calls."""
    try:
        return read_exported(exported, type(module).__name__, held=module.state_dict())
    except Unsupported:
        return None


def _large(module: nn.Module) -> bool:
    return sum(tensor.numel() for tensor in module.parameters()) > MANY_NUMBERS
