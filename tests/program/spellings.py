"""One function in many spellings: two linear layers, a ReLU, and a call between them that does nothing."""

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


def _assign(h: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(h)
    out[:, :2] = h[:, :2]
    out[:, 2:] = h[:, 2:]
    return out


FIRST: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "matmul": lambda x, w, b: x @ w.T + b,
    "matmul from the left": lambda x, w, b: (w @ x.T).T + b,
    "einsum": lambda x, w, b: b + torch.einsum("oi,ni->no", w, x),
    "einsum of a transpose": lambda x, w, b: torch.einsum("io,ni->on", w.t(), x).t() + b,
    "einsum with an ellipsis": lambda x, w, b: torch.einsum("...i,oi->...o", x, w) + b,
    "addmm": lambda x, w, b: torch.addmm(b, x, w.t()),
    "stacks of one": lambda x, w, b: torch.bmm(x[None], w.T[None])[0] + b,
    "sum of products": lambda x, w, b: (x[:, None, :] * w).sum(-1) + b,
    "tensordot": lambda x, w, b: torch.tensordot(x, w, dims=([1], [1])) + b,
    "inner": lambda x, w, b: torch.inner(x, w) + b,
    "chain of products": lambda x, w, b: torch.linalg.multi_dot([x, w.T]) + b,
    "one sample at a time": lambda x, w, b: torch.vmap(lambda row: functional.linear(row, w, b))(x),
    "minus minus": lambda x, w, b: functional.linear(x, w) - (-b),
    "einsum with an expanded weight": lambda x, w, b: torch.einsum("ni,noi->no", x, w.expand(len(x), 6, 5)) + b,
}
RELU: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "maximum": lambda h: torch.maximum(h, torch.zeros(())),
    "minus the minimum": lambda h: -torch.minimum(torch.zeros_like(h), -h),
    "less its minimum": lambda h: h - h.clamp(max=0),
    "where": lambda h: torch.where(h > 0, h, torch.zeros_like(h)),
    "where not below": lambda h: torch.where(~(h < 0), h, h * 0),
    "masked": lambda h: h * (h > 0),
    "masked as reals": lambda h: h - h * (h < 0).float(),
    "filled": lambda h: h.masked_fill(h <= 0, 0.0),
    "written at": lambda h: torch.index_put(h, [h < 0], torch.tensor(0.0)),
    "half of a sum": lambda h: (h + h.abs()) / 2,
    "sign": lambda h: h * (torch.sign(h) + 1) / 2,
    "leaky with slope 0": lambda h: functional.leaky_relu(h, 0.0),
    "clamped below infinity": lambda h: h.clamp(0.0, float("inf")),
    "stacked with zeros": lambda h: torch.stack([torch.zeros_like(h), h], -1).max(-1).values,
    "times the identity": lambda h: torch.relu(h) @ torch.eye(6, dtype=h.dtype),
    "twice": lambda h: torch.relu(torch.relu(h)),
    "in place": lambda h: h.relu_(),
    "in parts": lambda h: torch.cat([torch.relu(part) for part in h.split([1, 5], 1)], 1),
    "by columns": lambda h: torch.stack([torch.relu(part) for part in h.unbind(1)], 1),
    "in another shape": lambda h: torch.relu(h.view(-1, 2, 3)).reshape(-1, 6),
    "assigned in parts": lambda h: _assign(torch.relu(h)),
}
WAYS = (*FIRST, *RELU)


class Written(nn.Module):
    """The same function of the same parameters, with the layers or the ReLU written out in other ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.way = nn.Linear(5, 6), nn.Linear(6, 3), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = FIRST.get(self.way, functional.linear)(x, self.a.weight, self.a.bias)
        h = RELU.get(self.way, lambda h: h.clamp(min=0))(h)
        return functional.linear(h, self.b.weight) + self.b.bias


def degenerate(module: Spelled | Written) -> nn.Module:
    """The same with a constant neuron and one that is twice another: two that can go."""
    with torch.no_grad():
        module.a.weight[1] = 0.0
        module.a.bias[1] = 0.5
        module.a.weight[3] = 2 * module.a.weight[2]
        module.a.bias[3] = 2 * module.a.bias[2]
    return module.eval()
