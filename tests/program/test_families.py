"""Programs of model families compute what the modules compute."""

from __future__ import annotations

import pytest
import torch
from program.models import FAMILIES, make, run

from lawful.program import Builder, Node, Program
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.torch_export import read_module

# T5 starts its encoder and decoder with the same normalised embeddings: 11 of its 12 norms differ
NORMS = {"attention": 1, "vit": 5, "gpt2": 5, "llama": 5, "bert": 6, "t5": 11, "mixer": 5}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_read_whole_and_evaluates_alike(name: str) -> None:
    module, x = make(name)
    program = read_module(module, [x])
    assert program.opaque == []
    with torch.no_grad():
        ours, theirs = evaluate(program, x)[0], run(module, x).double()
    rounds = x.dtype == torch.int64  # modules of transformers compute in float32 inside
    assert float((ours - theirs).abs().max() / theirs.abs().max()) < (1e-5 if rounds else 1e-12)
    assert set(program.parameters) <= dict(module.named_parameters()).keys()
    assert _remade(program).digest() == program.digest()
    if name in NORMS:
        assert sum(node.op == "normalise" for node in program.nodes) == NORMS[name]


def _remade(program: Program) -> Program:
    """Every node built again of its own operands: in normal form there is nothing left to do."""
    b = Builder(program.source, program.tensors)
    new: dict[Node, Node] = {}
    for node in program.nodes:
        new[node] = b.remake(node, [new[each] for each in node.inputs])
    return b.finish(new[each] for each in program.outputs)
