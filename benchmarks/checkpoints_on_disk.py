"""Checkpoints on disk, of sizes that people have: `python -m benchmarks.checkpoints_on_disk [small|gpt2|300M|1B]`.

Folders of Hugging Face with random weights (Llama shapes in bfloat16, GPT-2 small in float32), in shards, and a
disguised copy beside each, are made in a temporary folder tensor by tensor. Then `same A B --certificate`, `verify` of
that certificate, and the sketch of `fingerprint --index` (beside reading the files once) run in processes of their
own, which say their processor time, and their peak memory with and without pages of the files (which the system may
drop at any time).
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import torch

SHAPES = {  # width, layers, units of a layer, heads, key heads, tokens
    "small": (256, 4, 704, 8, 2, 4000),
    "gpt2": (768, 12, 3072, 12, 12, 50257),
    "300M": (1024, 16, 2816, 16, 4, 32000),
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


def write_shards(folder: Path, tensors: Mapping[str, torch.Tensor], kind: torch.dtype) -> None:
    """Each layer a shard, and one for what is outside of layers."""
    from safetensors.torch import save_file

    shards: dict[str, list[str]] = {}
    for name in tensors:
        number = next((part for part in name.split(".") if part.isdigit()), "ends")
        shards.setdefault(f"model-{number}.safetensors", []).append(name)
    for file, names in shards.items():
        save_file({name: tensors[name].to(kind).contiguous() for name in names}, folder / file)
    index = {"weight_map": {name: file for file, names in shards.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_pair(place: Path, shape: str) -> None:
    """A random checkpoint and its disguise, on disk."""
    from lawful.checkpoints.architecture import random_member, read_architecture
    from lawful.checkpoints.opening import open_checkpoint
    from lawful.checkpoints.streamed import MadeTensors, folded_tensors
    from lawful.network.modules import hugging_face

    for name in "ab":
        write_config(place / name, shape)
    kind = torch.float32 if shape == "gpt2" else torch.bfloat16
    module, _, _ = hugging_face.module_of(place / "a", 0)
    sizes = {name: tensor.shape for name, tensor in module.named_parameters()}

    def draw(name: str) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(sorted(sizes).index(name))
        noise = torch.randn(sizes[name], generator=generator)
        return {name: 1 + 0.1 * noise if noise.ndim == 1 else 0.02 * noise}

    write_shards(place / "a", MadeTensors(sizes, draw), kind)
    found = read_architecture(module, "8:int")
    first = open_checkpoint(place / "a", module).state
    working = dict.fromkeys(first, torch.float64 if shape == "gpt2" else torch.float32)
    hidden = random_member(found.group, folded_tensors(first, found.folds, working), 1)
    write_shards(place / "b", MadeTensors(sizes, lambda name: {name: hidden[name]}), kind)


def same(place: Path) -> str:
    """Decide, and keep the evidence."""
    from lawful.checkpoints.certificate import copy_certificate
    from lawful.checkpoints.opening import open_checkpoints
    from lawful.checkpoints.verbs import decide

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
    """Two sketches, of which the second needs no architecture to be read; and what reading alone takes."""
    from lawful.study.checkpoint_sketches import Families

    families, spent = Families(None, None), [time.process_time()]
    for name in "ab":
        families.sketch(place / name)
        spent.append(time.process_time())
    for file in (place / "b").glob("*.safetensors"):
        file.read_bytes()
    spent.append(time.process_time())
    first, second, reading = (after - before for before, after in itertools.pairwise(spent))
    return f"{first:.0f} s, then {second:.1f} s, reading {reading:.1f} s"


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
