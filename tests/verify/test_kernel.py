"""The verifier stands alone, returns what it checked, is strict, and says which networks a certificate is about."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
from forging import REFUSED
from real import MAKERS, real

import lawful
from lawful import CertificateError, NotACertificate, verify
from lawful.network import Dag, Mlp
from lawful.network.digest import digest
from lawful.sources.files import FORMATS, read, write
from lawful.verify.core.dag import dag_of

ROOM = Path(lawful.__file__).parent / "verify"


@pytest.mark.parametrize("name", MAKERS)
def test_true_certificates_are_verified(name: str) -> None:
    found = verify(real(name))
    assert found.kind == real(name)["kind"]
    about = real(name)["about"]
    assert list(found.networks[: len(about)]) == about  # data follow
    assert verify(json.dumps(real(name))).statement == found.statement
    assert verify(json.dumps(real(name)).encode()).statement == found.statement


def test_every_kind_is_here() -> None:
    assert {real(name)["kind"] for name in MAKERS} == set(lawful.verify.KINDS)


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_room_imports_errors_and_itself_only() -> None:
    allowed = {"flint", "numpy", *sys.stdlib_module_names}
    for path in ROOM.rglob("*.py"):
        for name in imported(path):
            own = name.startswith(("lawful.errors.", "lawful.outward.", "lawful.verify"))
            sparse = name == "scipy.sparse.csr_array" and path == ROOM / "bounds" / "network.py"  # does without it, too
            assert own or sparse or name.split(".")[0] in allowed, f"{path.name} imports {name}"
        assert "__import__" not in path.read_text(encoding="utf-8")
        if path != ROOM / "__init__.py":  # which loads the checker of one kind, by a name that it holds itself
            assert "importlib" not in path.read_text(encoding="utf-8")


ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        ground = ("lawful", "lawful.errors", "lawful.outward", "lawful.version")
        own = name in ground or name.split(".")[:2] == ["lawful", "verify"]
        if name.split(".")[0] in ("torch", "scipy", "sympy", "typer") or (name.startswith("lawful") and not own):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import lawful
for line in sys.stdin:
    print(lawful.verify(line).statement)
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("lawful.")}
assert rooms == {"verify", "errors", "outward", "version"}, rooms
"""


def test_it_runs_where_every_other_room_is_missing() -> None:
    lines = "".join(json.dumps(real(name)) + "\n" for name in MAKERS)
    run = subprocess.run([sys.executable, "-c", ALONE], input=lines, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [verify(real(name)).statement for name in MAKERS]


# Strictness


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "3", '"laws"', "null", "{}", '{"kind": []}', '{"kind": "magic", "version": 1, "about": []}',
        '{"kind": "laws", "kind": "laws", "version": 1, "about": []}', '{"kind": "laws"}', '{"kind": null}',
        '{"kind": "laws", "version": 2, "about": []}', '{"kind": "laws", "version": true, "about": []}',
        '{"kind": "laws", "version": 1.0, "about": []}', '{"kind": "laws", "version": 1, "about": {}}',
        '{"kind": "laws", "version": 1, "about": [NaN]}', '{"kind": "laws", "version": 1, "about": [1e400]}',
        '{"kind": "laws", "version": 1, "about": [-Infinity]}', "[" * 100_000, '{"a":' * 5000, b"\xff\xfe\x00",
        '{"kind": "laws", "version": 1, "about": ' + "[" * 20 + "]" * 20 + "}",
        '{"kind": "laws", "version": 1, "about": [' + "9" * 5000 + "]}",
    ],
)  # fmt: skip
def test_what_is_no_certificate(text: str | bytes) -> None:
    with pytest.raises(NotACertificate):
        verify(text)


@pytest.mark.parametrize("name", MAKERS)
def test_another_version_is_neither_right_nor_wrong(name: str) -> None:
    proof = copy.deepcopy(real(name))
    for version in (proof["version"] - 1, proof["version"] + 1):
        with pytest.raises(NotACertificate, match="of another version"):
            verify(proof | {"version": version})


@pytest.mark.parametrize("thing", [{1: 2}, {"kind": {1, 2}}, {"kind": float("nan")}, {"kind": object()}])
def test_objects_that_are_no_json(thing: dict) -> None:
    with pytest.raises(NotACertificate):
        verify(thing)


@pytest.mark.parametrize("name", MAKERS)
def test_text_in_a_certificate_is_never_repeated(name: str) -> None:
    with pytest.raises(NotACertificate) as caught:
        verify(real(name) | {"statement": "FORGED"})
    assert "FORGED" not in str(caught.value)


@pytest.mark.parametrize("name", MAKERS)
def test_every_key_is_needed(name: str) -> None:
    for key in real(name):
        with pytest.raises(NotACertificate):
            verify({other: value for other, value in real(name).items() if other != key})


# Binding


def networks() -> list[Mlp | Dag]:
    from lawful.network import Architecture

    texts = ("2-3-1", "2-3-2 relu bias", "3-4-4-2 leaky_relu(0.25) bias", "2-3-3-1 relu skip(0,1)", "2-2 bias")
    return [Architecture.parse(text).initialise(seed=1) for text in texts]


@pytest.mark.parametrize("network", networks(), ids=str)
def test_a_digest_is_the_same_in_every_format_and_by_both_programs(network: Mlp | Dag, tmp_path: Path) -> None:
    single = network.with_theta(network.theta.astype("float32"))
    assert digest(single) == dag_of(single).digest() == dag_of(single.to_dag()).digest()
    assert digest(single, weights=False) == dag_of(single).digest(weights=False) != digest(single)
    for ending in FORMATS:
        path = tmp_path / f"network{ending}"
        try:
            write(single, path)
        except lawful.LawfulError:
            continue
        stated = None if ending in (".json", ".onnx", ".npz") else "leaky_relu(0.25)" if "4-4" in repr(single) else None
        assert digest(read(path, activation=stated)) == digest(single), ending


def test_digests_differ_where_networks_do() -> None:
    first = Mlp([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]]])
    others = [
        Mlp([[[1.0, 2.0], [3.0, 4.5]], [[1.0, 1.0]]]),
        Mlp([[[3.0, 4.0], [1.0, 2.0]], [[1.0, 1.0]]]),
        Mlp([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]]], slopes=0.5),
        Mlp([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]]], [[0.0, 0.0], None]),
        Mlp([[[1.0, 2.0], [3.0, 4.0]]]),
    ]
    assert len({digest(network) for network in (first, *others)}) == 6
    assert digest(Mlp([[[0.0]]])) == digest(Mlp([[[-0.0]]]))


def test_the_networks_given_must_be_those() -> None:
    from real import redundant

    from lawful.pruning.neurons.prune import prune

    before, after = redundant(), prune(redundant(), replayable=True).network
    proof = real("pruning")
    assert verify(proof, before).given == (0,)
    assert verify(proof, after).given == (1,)
    assert verify(proof, after, before).given == (1, 0)
    for wrong in ((before, before), (Mlp([[[1.0, 2.0]]]),), (before, after, after)):
        with pytest.raises(CertificateError, match="not about"):
            verify(proof, *wrong)
    with pytest.raises(NotACertificate, match="no network"):
        verify(proof, "network")


@pytest.mark.parametrize("name", MAKERS)
def test_other_digests_are_rejected(name: str) -> None:
    """Also the digest of a network in a certificate that is about data."""
    proof = copy.deepcopy(real(name))
    first, *rest = proof["about"] or ["1"]
    proof["about"] = [first[:-1] + ("0" if first[-1] != "0" else "1"), *rest]
    with pytest.raises(CertificateError, match="digests"):
        verify(proof)
    for about in ([3], [None], [[]], [] if real(name)["about"] else ["1"]):
        with pytest.raises(REFUSED):
            verify(proof | {"about": about})
