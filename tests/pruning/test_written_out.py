"""Attention written out as products and a softmax, norms of queries and keys, tables of embeddings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pruned import kinds, same
from torch import Tensor, nn
from torch.nn import functional

from lawful import verify
from lawful.pruning.channels import ChannelPruning, prune_channels
from lawful.pruning.channels.certificate import certificate

TOKENS = (2, 5, 8)


class WrittenOut(nn.Module):
    """Two heads of four channels each, as people write them."""

    def __init__(self, scale: float | None = 0.5, way: str = "") -> None:
        super().__init__()
        self.query, self.key, self.value, self.last = (nn.Linear(8, 8) for _ in range(4))
        self.norm, self.num_heads, self.scale, self.way = nn.LayerNorm(8 if way == "norm all" else 4), 2, scale, way
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)) == 0)

    def forward(self, x: Tensor) -> Any:
        query = self.norm(self.query(x)) if self.way == "norm all" else self.query(x)
        parts = [query, self.key(x), self.value(x)]
        query, key, value = (each.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2) for each in parts)
        if self.way == "norm":
            query, key = self.norm(query), self.norm(key)
        if self.way == "heads meet":
            query = query + torch.cat([query[:, 1:], query[:, :1]], 1)
        if self.way == "heads meet early":
            early = query.transpose(1, 2)
            query = (early + torch.cat([early[:, :, 1:], early[:, :, :1]], 2)).transpose(1, 2)
        scores = query @ key.transpose(-2, -1) * (self.scale or 1 / math.sqrt(key.shape[-1]))
        if self.way == "bent":
            scores = torch.tanh(scores)
        weights = functional.softmax(scores.masked_fill(self.mask, -math.inf), -1)
        found = self.last((weights @ value).transpose(1, 2).flatten(2))
        return (found, weights) if self.way == "shown" else found


@torch.no_grad()
def model(*given: Any) -> WrittenOut:
    torch.manual_seed(0)
    return WrittenOut(*given).eval()


def pruned(given: nn.Module, *sizes: Any) -> ChannelPruning:
    found = prune_channels(given, list(sizes) or [TOKENS])
    verify(certificate(found), given, found.module)
    return found


@torch.no_grad()
def test_heads_and_inner_channels_leave() -> None:
    given = model()
    given.last.weight[:, 4:] = 0.0
    found = pruned(given)
    assert found.module.num_heads == 1
    assert kinds(found) == {"silent": 12}
    same(given, found, 5, 8)
    given = model()
    for layer in (given.key, given.value):
        layer.weight[[1, 6]] = 0.0  # the same key everywhere, and a constant value: every query sees a key
    found = pruned(given)
    assert (found.module.query.out_features, found.module.value.out_features) == (6, 6)
    same(given, found, 5, 8)


@torch.no_grad()
def test_a_scale_that_counts_channels_keeps_them() -> None:
    given = model(None)
    given.key.weight[[1, 6]], given.value.weight[[1, 6]] = 0.0, 0.0
    assert not pruned(given).removed
    given.last.weight[:, 4:] = 0.0
    found = pruned(given)
    assert found.module.num_heads == 1
    same(given, found, 5, 8)


@torch.no_grad()
def test_norms_of_queries_and_keys_keep_to_their_head() -> None:
    given = model(0.5, "norm")
    given.last.weight[:, 4:] = 0.0
    found = pruned(given)
    assert found.module.num_heads == 1
    same(given, found, 5, 8)


@pytest.mark.parametrize("way", ["norm all", "heads meet", "heads meet early", "shown"])
@torch.no_grad()
def test_what_is_no_attention_of_its_own_stays(way: str) -> None:
    """A norm over all heads, queries that meet another head's, weights that are an output."""
    given = model(0.5, way)
    given.last.weight[:, 4:] = 0.0
    given.key.weight[[1, 6]] = 0.0
    found = pruned(given)
    assert not found.removed


@torch.no_grad()
def test_bent_scores_keep_their_inner_channels_and_lose_heads() -> None:
    """Under a tanh the softmax sees what is the same for all keys: a bias of keys is no longer dead."""
    given = model(0.5, "bent")
    given.key.weight[[1, 6]] = 0.0
    assert not pruned(given).removed
    assert prune_channels(given, [TOKENS], fold=True).module.key.bias is not None
    for layer in (given.query, given.key, given.value):
        layer.weight[4:], layer.bias[4:] = layer.weight[:4], layer.bias[:4]
    given.key.bias[4] += 1.0
    assert not pruned(given).removed
    given.key.bias[4] = given.key.bias[0]
    found = pruned(given)
    assert found.module.num_heads == 1
    same(given, found, 5, 8)


class Table(nn.Module):
    """Words, averaged, and two layers, the second a bare parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.one, self.two = nn.Embedding(10, 6), nn.Linear(6, 5), nn.Parameter(torch.randn(5, 2))

    def forward(self, words: Tensor) -> Tensor:
        return functional.relu(self.one(self.table(words).mean(1))) @ self.two


@torch.no_grad()
def test_columns_of_embeddings_and_bare_parameters() -> None:
    torch.manual_seed(1)
    given = Table().eval()
    given.one.weight[:, 2] = 0.0  # nobody hears it
    given.table.weight[:, 4] = 0.0  # it says nothing
    given.table.weight[:, 5] = 2 * given.table.weight[:, 0]
    given.two[3] = 0.0
    words = torch.randint(0, 10, (2, 4), generator=torch.Generator().manual_seed(0))
    found = pruned(given, words)
    assert kinds(found) == {"silent": 2, "constant": 1, "duplicate": 1}
    assert (found.module.table.embedding_dim, found.module.two.shape) == (3, (4, 2))
    assert torch.allclose(given(words), found.module(words), atol=1e-5)
    tied = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 10, bias=False))
    tied[1].weight = tied[0].weight
    tied[0].weight[:, 1] = 0.0
    assert not prune_channels(tied, [words]).removed
