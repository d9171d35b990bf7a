"""Every reader and writer keeps the function; our own formats keep every bit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).parent))
from network_instances import all_networks, sparse_dag

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Architecture, Dag, Mlp
from lawful.sources.files import FORMATS, read, write

NETWORKS = all_networks()
EXACT = (".safetensors", ".pt", ".pth", ".npz", ".json")


def batch_for(network: Mlp | Dag, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(64, len(network.to_dag().inputs)))


def assert_same_function(first: Mlp | Dag, second: Mlp | Dag) -> None:
    batch = batch_for(first)
    expected = first.evaluate(batch)
    assert np.abs(second.evaluate(batch) - expected).max() <= 1e-14 * max(1.0, np.abs(expected).max())


def assert_identical(first: Dag, second: Dag, *, node_order: bool = True) -> None:
    if node_order:
        assert first.names == second.names
        assert (first.roles == second.roles).all()
        assert (first.slopes == second.slopes).all()
    assert [first.edge_name(edge) for edge in range(first.parameters)] == [
        second.edge_name(edge) for edge in range(second.parameters)
    ]
    assert (first.weights is None and second.weights is None) or (first.theta == second.theta).all()
    for part in ("inputs", "hidden", "outputs"):
        assert [first.names[v] for v in getattr(first, part)] == [second.names[v] for v in getattr(second, part)]
        assert (first.slopes[getattr(first, part)] == second.slopes[getattr(second, part)]).all()


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip_keeps_the_function(name: str, suffix: str, tmp_path: Path) -> None:
    write(NETWORKS[name], tmp_path / f"net{suffix}")
    assert_same_function(NETWORKS[name], read(tmp_path / f"net{suffix}"))
    assert [path.name for path in tmp_path.iterdir()] == [f"net{suffix}"]


@pytest.mark.parametrize("suffix", EXACT)
@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip_keeps_every_bit(name: str, suffix: str, tmp_path: Path) -> None:
    network = NETWORKS[name]
    write(network, tmp_path / f"net{suffix}")
    again = read(tmp_path / f"net{suffix}")
    assert type(again) is type(network)
    # A JSON graph lists nodes by role; every other format keeps their order too.
    assert_identical(network.to_dag(), again.to_dag(), node_order=suffix != ".json")
    if isinstance(network, Mlp) and isinstance(again, Mlp):
        assert again.slopes == network.slopes
    first = (tmp_path / f"net{suffix}").read_bytes()
    write(again, tmp_path / f"net{suffix}")
    assert (tmp_path / f"net{suffix}").read_bytes() == first


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors", ".pt"])
@pytest.mark.parametrize("text", ["3-4-2 relu bias", "3-4-4-2 leaky_relu(0.2) bias skip(1,2)"])
def test_graphs_without_weights_round_trip(text: str, suffix: str, tmp_path: Path) -> None:
    dag = Architecture.parse(text).to_dag()
    write(dag, tmp_path / f"net{suffix}")
    again = read(tmp_path / f"net{suffix}")
    assert isinstance(again, Dag)
    assert_identical(dag, again)


@settings(max_examples=trials(8, 25), deadline=None)
@given(seed=st.integers(0, 10**6), density=st.floats(0.05, 0.6), mixed=st.booleans())
def test_any_graph_survives_json_and_onnx(
    seed: int, density: float, mixed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("graphs")
    dag = sparse_dag(seed, nodes=18, density=density, slopes="mixed" if mixed else 0.0)
    write(dag, folder / "net.json")
    again = read(folder / "net.json")
    assert_identical(dag, again.to_dag(), node_order=False)
    write(dag, folder / "net.onnx")
    assert_same_function(dag, read(folder / "net.onnx", drop_useless=True))


@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_files_are_valid_and_run_elsewhere(name: str, tmp_path: Path) -> None:
    network, path = NETWORKS[name], tmp_path / "net.onnx"
    write(network, path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    batch = batch_for(network)
    (outputs,) = ReferenceEvaluator(str(path)).run(None, {"input": batch})
    assert np.abs(outputs - network.evaluate(batch)).max() <= 1e-13 * max(1.0, np.abs(outputs).max())


def test_a_dense_onnx_chain_comes_back_as_the_same_mlp(tmp_path: Path) -> None:
    for name in ("biased", "leaky", "linear", "mixed"):
        write(NETWORKS[name], tmp_path / "net.onnx")
        again = read(tmp_path / "net.onnx")
        assert isinstance(again, Mlp)
        assert_identical(NETWORKS[name].to_dag(), again.to_dag())


def test_pytorch_loads_what_we_write(tmp_path: Path) -> None:
    network = NETWORKS["leaky"]
    for suffix, load in ((".pt", torch.load), (".safetensors", safetensors.torch.load_file)):
        write(network, tmp_path / f"net{suffix}")
        twin = torch.nn.Sequential(
            torch.nn.Linear(3, 5), torch.nn.LeakyReLU(0.1), torch.nn.Linear(5, 4), torch.nn.LeakyReLU(0.1),
            torch.nn.Linear(4, 2),
        ).double()  # fmt: skip
        twin.load_state_dict(load(tmp_path / f"net{suffix}"))
        batch = batch_for(network)
        assert np.abs(twin(torch.tensor(batch)).detach().numpy() - network.evaluate(batch)).max() < 1e-14


@pytest.mark.parametrize(
    "kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.uint8]
)
def test_state_dicts_of_any_precision_are_read_exactly(kind: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = {
        "fc1.weight": (10 * torch.randn(4, 3)).abs().to(kind),
        "fc1.bias": (10 * torch.randn(4)).abs().to(kind),
        "fc2.weight": (10 * torch.randn(2, 4)).abs().to(kind),
    }
    torch.save(state, tmp_path / "net.pt")
    safetensors.torch.save_file(state, tmp_path / "net.safetensors")
    files = [".pt", ".safetensors"]
    if kind != torch.bfloat16:
        np.savez_compressed(tmp_path / "net.npz", **{name: tensor.numpy() for name, tensor in state.items()})
        files.append(".npz")
    for suffix in files:
        network = read(tmp_path / f"net{suffix}")
        assert isinstance(network, Mlp)
        assert (network.weights[0] == state["fc1.weight"].double().numpy()).all()
        assert (network.biases[0] == state["fc1.bias"].double().numpy()).all()  # type: ignore[union-attr]
        assert network.biases[1] is None
        assert network.slopes == (0.0,)


def test_activation_is_the_users_word_only_where_the_file_has_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", **{"0.weight": np.ones((2, 2)), "2.weight": np.ones((1, 2))})
    assert read(tmp_path / "bare.npz", activation="leaky_relu(0.3)").to_dag().slopes[2] == 0.3
    write(NETWORKS["leaky"], tmp_path / "ours.npz")
    assert read(tmp_path / "ours.npz", activation="leaky_relu(0.1)").to_dag().slopes[4] == 0.1
    for name in ("ours.npz", "ours.json", "ours.onnx"):
        write(NETWORKS["leaky"], tmp_path / name)
        with pytest.raises(LawfulError, match="--activation"):
            read(tmp_path / name, activation="relu")
    with pytest.raises(InvalidNetwork, match="homogeneous"):
        read(tmp_path / "bare.npz", activation="sigmoid")


def test_layers_are_ordered_by_the_one_number_in_their_names_or_by_the_user(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbered = {f"layers.{number}.weight": rng.normal(size=(3, 3)) for number in (10, 9, 2)}
    safetensors.numpy.save_file(numbered, tmp_path / "net.safetensors")
    network = read(tmp_path / "net.safetensors")
    assert isinstance(network, Mlp)
    assert (network.weights[0] == numbered["layers.2.weight"]).all()
    assert (network.weights[2] == numbered["layers.10.weight"]).all()
    named = {
        "trunk1.weight": rng.normal(size=(4, 3)),
        "trunk2.weight": rng.normal(size=(4, 4)),
        "head.weight": np.ones((2, 4)),
    }
    safetensors.numpy.save_file(named, tmp_path / "net.safetensors")
    with pytest.raises(InvalidNetwork, match=r"--order .* or --model .*in the order trunk1,trunk2,head"):
        read(tmp_path / "net.safetensors")
    network = read(tmp_path / "net.safetensors", order=["trunk1", "trunk2", "head"])
    assert network.to_dag().parameters == 12 + 16 + 8
    square = {"encoder.weight": np.ones((3, 3)), "decoder.weight": np.eye(3)}
    torch.save({name: torch.tensor(array) for name, array in square.items()}, tmp_path / "net.pt")
    with pytest.raises(InvalidNetwork, match="do not say how its layers are joined"):
        read(tmp_path / "net.pt")
    network = read(tmp_path / "net.pt", order=["encoder", "decoder"])
    assert isinstance(network, Mlp)
    assert (network.weights[1] == np.eye(3)).all()


def test_checkpoints_are_opened(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 2)
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, tmp_path / "net.pt")
    assert read(tmp_path / "net.pt").to_dag().parameters == 8


def test_json_graph_of_the_documentation(tmp_path: Path) -> None:
    graph = {
        "inputs": ["a", "b"], "outputs": ["y"], "edges": [["a", "h", 0.5], ["b", "h", -1.0], ["h", "y", -1.0]],
        "biases": {"h": 0.1}, "activation": "relu",
    }  # fmt: skip
    path = tmp_path / "net.json"
    path.write_text(json.dumps(graph))
    dag = read(path)
    assert isinstance(dag, Dag)
    assert dag.names == ("a", "b", "h", "y", "bias")
    assert dag.evaluate([[2.0, 0.3]]).tolist() == [[-(0.5 * 2 - 0.3 + 0.1)]]
    path.write_text(json.dumps({**graph, "edges": [*graph["edges"], ["a", "bias", 1.0], ["bias", "y", 1.0]]}))
    dag = read(path).to_dag()
    assert dag.names[-1] == "bias_"  # "bias" was taken
    path.write_text(json.dumps({**graph, "activation": {"h": "leaky_relu(0.5)"}}))
    assert read(path).evaluate([[-2.0, 0.0]]).tolist() == [[0.45]]
    path.write_text(json.dumps({"inputs": ["a"], "outputs": ["y"], "edges": [["a", "h"], ["h", "y"]], "biases": ["y"]}))
    dag = read(path).to_dag()
    assert dag.weights is None
    assert dag.parameters == 3
    with pytest.raises(Unsupported, match="no weights"):
        write(dag, tmp_path / "net.onnx")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.npz"
    write(NETWORKS["relu"], path)
    before = path.read_bytes()

    def fail(self: Path, data: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(LawfulError, match="no space"):
        write(NETWORKS["biased"], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_places_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "empty.pt").touch()
    (tmp_path / "net.txt").write_text("hello")
    for path, words in (
        (tmp_path / "folder.json", "folder"),
        (tmp_path / "absent.npz", "no such file"),
        (tmp_path / "empty.pt", "empty"),
        (tmp_path / "net.txt", "unsupported file type"),
    ):
        with pytest.raises(LawfulError, match=words):
            read(path)
    for path, words in (
        (tmp_path / "folder.json", "folder"),
        (tmp_path / "absent" / "net.npz", "folder does not exist"),
        (tmp_path / "net.txt", "unknown ending"),
    ):
        with pytest.raises(LawfulError, match=words):
            write(NETWORKS["relu"], path)


def test_a_graph_too_wide_for_dense_blocks_is_refused(tmp_path: Path) -> None:
    count = 5000
    star = Dag(
        [*(f"x{i}" for i in range(count)), *(f"h{i}" for i in range(count)), "y"],
        [0] * count + [1] * count + [2],
        np.arange(2 * count),
        np.concatenate([np.arange(count, 2 * count), np.full(count, 2 * count)]),
        np.ones(2 * count),
    )
    with pytest.raises(Unsupported, match="dense blocks"):
        write(star, tmp_path / "net.onnx")


def test_input_shape_must_fit(tmp_path: Path) -> None:
    write(NETWORKS["relu"], tmp_path / "net.npz")
    assert read(tmp_path / "net.npz", input_shape=(3,)).to_dag().parameters == 20
    with pytest.raises(InvalidNetwork, match="has 3 inputs"):
        read(tmp_path / "net.npz", input_shape=(2, 2))
