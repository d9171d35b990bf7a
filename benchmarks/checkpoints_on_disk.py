"""Checkpoints on disk, of sizes that people have: `python -m benchmarks.checkpoints_on_disk [small|gpt2|300M|wide|1B]`.

Folders of Hugging Face with random weights (Llama shapes in bfloat16, GPT-2 small in float32), in shards, and a
disguised copy beside each, are made in a temporary folder tensor by tensor. Then `same A B --certificate`, `verify` of
that certificate, and the sketch of `fingerprint --index` (beside reading the files once) run in processes of their
own, which say their processor time, and their peak memory with and without pages of the files (which the system may
drop at any time).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

SHAPES = {  # width, layers, units of a layer, heads, key heads, tokens
    "small": (256, 4, 704, 8, 2, 4000),
    "gpt2": (768, 12, 3072, 12, 12, 50257),
    "300M": (1024, 16, 2816, 16, 4, 32000),
    "wide": (2048, 2, 5632, 32, 4, 32000),  # two layers of the next
    "1B": (2048, 22, 5632, 32, 4, 32000),
}


def write_config(folder: Path, shape: str) -> None:
    """What `transformers` needs to know of a Llama, or of a GPT-2."""
    width, layers, units, heads, keys, tokens = SHAPES[shape]
    folder.mkdir()
    if shape == "gpt2":
        gpt = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers,
               "n_inner": units, "n_head": heads, "vocab_size": tokens, "n_positions": 1024,
               "torch_dtype": "float32"}  # fmt: skip
        (folder / "config.json").write_text(json.dumps(gpt))
        return
    settings = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
                "num_hidden_layers": layers, "intermediate_size": units, "num_attention_heads": heads,
                "num_key_value_heads": keys, "vocab_size": tokens, "max_position_embeddings": 64,
                "tie_word_embeddings": False, "torch_dtype": "bfloat16"}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))


def write_shards(
    folder: Path,
    sizes: Mapping[str, torch.Size],
    made: Callable[[list[str]], Mapping[str, torch.Tensor]],
    kind: torch.dtype,
) -> None:
    """Each layer a shard, and one for what is outside of layers."""
    from safetensors.torch import save_file

    shards: dict[str, list[str]] = {}
    for name in sizes:
        number = next((part for part in name.split(".") if part.isdigit()), "ends")
        shards.setdefault(f"model-{number}.safetensors", []).append(name)
    for file, names in shards.items():
        save_file({name: tensor.to(kind).contiguous() for name, tensor in made(names).items()}, folder / file)
    index = {"weight_map": {name: file for file, names in shards.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_pair(place: Path, shape: str) -> None:
    """A random checkpoint and its disguise, on disk."""
    from lawful.sources.checkpoints import hugging_face

    for name in "ab":
        write_config(place / name, shape)
    kind = torch.float32 if shape == "gpt2" else torch.bfloat16
    module, _, _ = hugging_face.module_of(place / "a", 0)
    sizes = {name: tensor.shape for name, tensor in module.named_parameters()}

    def draw(name: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(sorted(sizes).index(name))
        noise = torch.randn(sizes[name], generator=generator)
        return 1 + 0.1 * noise if noise.ndim == 1 else 0.02 * noise

    write_shards(place / "a", sizes, lambda names: {name: draw(name).to(kind) for name in names}, kind)
    if shape == "gpt2":
        hidden = drawn_member(place, module)
        write_shards(place / "b", sizes, lambda names: {name: hidden[name] for name in names}, kind)
    else:
        disguise = LlamaDisguise(*SHAPES[shape], lambda name: draw(name).to(kind).float())
        write_shards(place / "b", sizes, disguise.shard, kind)


def drawn_member(place: Path, module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    """A member of the orbit of what is there, drawn from the group that the reader sees."""
    from lawful.checkpoints.align.lazy_tensors import folded_tensors
    from lawful.checkpoints.group.random_members import random_member
    from lawful.checkpoints.opening import open_checkpoint
    from lawful.checkpoints.read_architecture import read_architecture

    found = read_architecture(module, "8:int")
    return random_member(found.group, folded_tensors(open_checkpoint(place / "a", module).state, found.folds), 1)


class LlamaDisguise:
    """A Llama hidden by what is written here and nothing else: gains folded, the stream rotated, heads exchanged within
    and with their groups, keys turned and scaled pair by pair, values mixed, units exchanged and scaled."""

    def __init__(
        self,
        width: int,
        layers: int,
        units: int,
        heads: int,
        keys: int,
        tokens: int,
        read: Callable[[str], torch.Tensor],
    ) -> None:
        self.read, self.width, self.units, self.heads, self.keys = read, width, units, heads, keys
        self.random = torch.Generator().manual_seed(2026)
        self.turn = torch.linalg.qr(torch.randn(width, width, generator=self.random, dtype=torch.float64))[0].float()

    def shard(self, names: list[str]) -> dict[str, torch.Tensor]:
        """The tensors of one layer, or those outside of layers."""
        whole = {name: torch.ones(self.width) for name in names if name.endswith("norm.weight")}
        for name in names:
            if name.endswith("embed_tokens.weight"):
                whole[name] = self.read(name) @ self.turn
            elif name == "lm_head.weight":
                whole[name] = self.read(name) * self.read("model.norm.weight") @ self.turn
            elif name.endswith("q_proj.weight"):
                whole |= self.layer(name.removesuffix("self_attn.q_proj.weight"))
        return whole

    def layer(self, at: str) -> dict[str, torch.Tensor]:
        """Attention and units."""
        size, copies = self.width // self.heads, self.heads // self.keys
        first, second = (self.read(f"{at}{name}_layernorm.weight") for name in ("input", "post_attention"))
        q, k, v = (self.read(f"{at}self_attn.{name}_proj.weight") * first @ self.turn for name in "qkv")
        o = self.turn.T @ self.read(f"{at}self_attn.o_proj.weight")
        q, k, v = q.view(self.keys, copies, size, -1), k.view(self.keys, size, -1), v.view(self.keys, size, -1)
        o = o.view(self.width, self.keys, copies, size)
        for group in range(self.keys):
            inner = torch.randperm(copies, generator=self.random)
            q[group], o[:, group] = q[group, inner], o[:, group, inner]
            scale = torch.exp(0.3 * torch.randn(size // 2, generator=self.random))
            phase = 6.2832 * torch.rand(size // 2, generator=self.random)
            k[group] = turned(k[group], scale, phase)
            for copy in range(copies):
                q[group, copy] = turned(q[group, copy], 1 / scale, phase)
            mixing = torch.eye(size) + 0.5 * torch.randn(size, size, generator=self.random) / size**0.5
            v[group] = mixing @ v[group]
            o[:, group] = o[:, group] @ torch.linalg.inv(mixing)
        groups = torch.randperm(self.keys, generator=self.random)
        order = torch.randperm(self.units, generator=self.random)
        scale = torch.exp(0.3 * torch.randn(self.units, generator=self.random))
        gate, up = (self.read(f"{at}mlp.{name}_proj.weight") * second @ self.turn for name in ("gate", "up"))
        down = self.turn.T @ self.read(f"{at}mlp.down_proj.weight")
        return {
            f"{at}self_attn.q_proj.weight": q[groups].reshape(self.width, -1),
            f"{at}self_attn.k_proj.weight": k[groups].reshape(self.keys * size, -1),
            f"{at}self_attn.v_proj.weight": v[groups].reshape(self.keys * size, -1),
            f"{at}self_attn.o_proj.weight": o[:, groups].reshape(self.width, -1),
            f"{at}mlp.gate_proj.weight": gate[order],
            f"{at}mlp.up_proj.weight": up[order] * scale[:, None],
            f"{at}mlp.down_proj.weight": down[:, order] / scale,
        }


def turned(rows: torch.Tensor, scale: torch.Tensor, phase: torch.Tensor) -> torch.Tensor:
    """The rows of a head, the first half real parts and the second imaginary ones, each pair multiplied."""
    real, imaginary = rows.chunk(2)
    cosine, sine = (scale * torch.cos(phase))[:, None], (scale * torch.sin(phase))[:, None]
    return torch.cat([cosine * real - sine * imaginary, sine * real + cosine * imaginary])


def same(place: Path) -> str:
    """Decide, and keep the evidence."""
    from lawful.checkpoints.compare.certificate import copy_certificate
    from lawful.checkpoints.opening import open_checkpoints
    from lawful.checkpoints.verdict import decide

    pair, found = decide(open_checkpoints(place / "a", place / "b"))
    words = f"{found.verdict} ({found.reason})"
    if found.certified:
        (place / "copy.json").write_text(json.dumps(copy_certificate(pair, found)))
        words += f", certificate of {(place / 'copy.json').stat().st_size / 1e6:.0f} MB"
    return words


def verify(place: Path) -> str:
    """Check the evidence."""
    from lawful.cli.checkpoints import FloatTensors
    from lawful.verify import verify as check

    return check((place / "copy.json").read_bytes(), *(FloatTensors(place / name) for name in "ab")).statement


def fingerprint(place: Path) -> str:
    """Two sketches, of which the second needs no architecture to be read; then reading: of the files, and one sum."""
    from lawful.api.checkpoints.sketches import Families

    def read() -> None:
        for file in (place / "b").glob("*.safetensors"):
            numbers = file.read_bytes()
            np.frombuffer(numbers, dtype=np.float32, count=len(numbers) // 4).sum()

    families = Families(None, None)
    first = timed(lambda: families.sketch(place / "a"))[0]
    ours, reading = timed(lambda: families.sketch(place / "b")), timed(read)
    clock, processor = (one / other for one, other in zip(ours, reading, strict=True))
    return (f"{first:.0f} s, then {ours[0]:.2f} s, reading {reading[0]:.2f} s ({clock:.1f} times; "
            f"{processor:.1f} times its processor time)")  # fmt: skip


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    start = time.monotonic(), time.process_time()
    run()
    return time.monotonic() - start[0], time.process_time() - start[1]


VERBS = {"same": same, "verify": verify, "fingerprint": fingerprint}


def measured(verb: str, place: Path) -> None:
    """One verb in this process, and what it took."""
    anonymous = [0.0]

    def watch() -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            held = next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)
            anonymous[0] = max(anonymous[0], held / 1e6)
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    words = VERBS[verb](place)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{verb}: {words}; {usage.ru_utime + usage.ru_stime:.0f} s of processor time, peak {anonymous[0]:.1f} GB "
          f"and {usage.ru_maxrss / 1e6:.1f} GB with pages of the files", flush=True)  # fmt: skip


def main(shape: str) -> None:
    """Make, then decide."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        start = time.process_time()
        make_pair(place, shape)
        size = sum(file.stat().st_size for file in (place / "a").iterdir()) / (4e6 if shape == "gpt2" else 2e6)
        print(f"{shape}: {size:.0f} M parameters, made in {time.process_time() - start:.0f} s", flush=True)
        for verb in VERBS:
            subprocess.run([sys.executable, "-m", "benchmarks.checkpoints_on_disk", verb, str(place)], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measured(sys.argv[1], Path(sys.argv[2]))
    else:
        main(sys.argv[1] if len(sys.argv) == 2 else "small")
