"""One function in 25 spellings: two linear layers, a ReLU, and a call between them that does nothing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

NOTHING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda h: h,
    "type_as": lambda h: h.type_as(h),
    "to": lambda h: h.to(torch.float32),
    "contiguous": lambda h: h.contiguous(),
    "clone": lambda h: h.clone(),
    "view_as": lambda h: h.view_as(h),
    "reshape": lambda h: h.reshape(h.shape),
    "unsqueeze and squeeze": lambda h: h.unsqueeze(1).squeeze(1),
    "expand_as": lambda h: h.expand_as(h),
    "transpose twice": lambda h: h.transpose(0, 1).transpose(0, 1),
    "permute twice": lambda h: h.permute(1, 0).permute(1, 0),
    "chunk and cat": lambda h: torch.cat(h.chunk(2, 1), 1),
    "stack and select": lambda h: torch.stack([h, h])[0],
    "flatten": lambda h: h.flatten(1),
    "flip twice": lambda h: h.flip(1).flip(1),
    "plus 0": lambda h: h + 0.0,
    "times 1": lambda h: h * 1.0,
    "where with equal branches": lambda h: torch.where(h == h, h, h),
    "dropout in evaluation": lambda h: functional.dropout(h, 0.5, False),
    "narrow": lambda h: h.narrow(1, 0, h.shape[1]),
    "index_select": lambda h: h.index_select(1, torch.arange(h.shape[1])),
    "clamp_min": lambda h: h.clamp_min(0),
    "positive": lambda h: torch.positive(h),
    "einsum": lambda h: torch.einsum("ij->ij", h),
    "movedim twice": lambda h: h.movedim(0, 1).movedim(0, 1),
}


class Spelled(nn.Module):
    """`b(f(relu(a(x))))`; `clamp_min` takes the place of the ReLU."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.name = nn.Linear(5, 6), nn.Linear(6, 3), name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        return self.b(NOTHING[self.name](h if self.name == "clamp_min" else torch.relu(h)))


class Written(nn.Module):
    """The same function of the same parameters, with the layers written out in other ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.way = nn.Linear(5, 6), nn.Linear(6, 3), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w, v = self.a.weight, self.b.weight
        if self.way == "matmul":
            h = x @ w.T + self.a.bias
        elif self.way == "matmul from the left":
            h = (w @ x.T).T + self.a.bias
        elif self.way == "einsum":
            h = self.a.bias + torch.einsum("oi,ni->no", w, x)
        elif self.way == "addmm":
            h = torch.addmm(self.a.bias, x, w.t())
        elif self.way == "einsum with an expanded weight":
            h = torch.einsum("ni,noi->no", x, w.expand(len(x), 6, 5)) + self.a.bias
        else:
            h = functional.linear(x, w, self.a.bias)
        if self.way == "maximum":
            h = torch.maximum(h, torch.zeros(()))
        elif self.way == "minus the minimum":
            h = -torch.minimum(torch.zeros_like(h), -h)
        else:
            h = h.clamp(min=0)
        return functional.linear(h, v) + self.b.bias


WAYS = (
    "matmul",
    "matmul from the left",
    "einsum",
    "addmm",
    "maximum",
    "minus the minimum",
    "einsum with an expanded weight",
)


def degenerate(module: Spelled | Written) -> nn.Module:
    """The same with a constant neuron and one that is twice another: two that can go."""
    with torch.no_grad():
        module.a.weight[1] = 0.0
        module.a.bias[1] = 0.5
        module.a.weight[3] = 2 * module.a.weight[2]
        module.a.bias[3] = 2 * module.a.bias[2]
    return module.eval()
