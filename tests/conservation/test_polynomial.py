"""Polynomial laws: found without being told, complete, exact, and named."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy
from flint import nmod_mat

from lawful import Architecture, Dag, LawfulError, Unsupported
from lawful.conservation import count_laws
from lawful.conservation.fields.gradient import Gradients
from lawful.conservation.known.law import Law
from lawful.conservation.known.polynomial import PRIME, is_law, polynomial_laws
from lawful.conservation.wording import Wording
from lawful.exact import Dual, residues


def dense_count(text: str, loss: str = "full") -> int:
    """Dimension of the space of laws of degree at most 2 from one dense system, no gradings."""
    dag = Architecture.parse(text).to_dag()
    size = dag.parameters
    pairs = [(a, b) for a in range(size) for b in range(a, size)]
    rows = np.arange(size + len(pairs) + 5)
    family = Gradients(dag, PRIME, 9, loss)
    points = residues(9, (5,), rows, size, PRIME).T.copy()
    fields = family.field(Dual.constant(points, PRIME), family.draw((6,), rows)).real
    columns = [*fields, *(points[a] * fields[b] + points[b] * fields[a] for a, b in pairs)]
    entries = (np.array(columns) % PRIME).ravel().tolist()
    return len(columns) - int(nmod_mat(len(columns), len(rows), entries, PRIME).rank())


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("2-3-2 linear", "full"), ("2-2-2 relu bias", "full"), ("2-2-2 linear bias", "full"), ("3-2-1-2 relu", "full"),
        ("1-3-1 linear", "full"), ("2-2-3 linear", "cross-entropy"), ("2-2-2-1 leaky_relu(0.5) skip(0,1)", "full"),
    ],
)  # fmt: skip
def test_gradings_lose_no_law(text: str, loss: str) -> None:
    found = polynomial_laws(text, 2, loss=loss)
    assert len(found) == dense_count(text, loss)
    assert found.blocks > 1


@pytest.mark.parametrize("text", ["5-5-5-5 linear", "4-3-5-2 relu bias", "3-4-3 linear bias", "2-7-2 linear"])
def test_degree_two_finds_every_law(text: str) -> None:
    """P1 Appendix I."""
    found = polynomial_laws(text, 2)
    assert found.independent == count_laws(text).laws
    assert {law.kind for law in found.laws} <= {"neuron", "pair"}


def test_powers_are_laws_but_not_independent() -> None:
    found = polynomial_laws("1-1-1 linear", 6)
    assert [law.kind for law in found.laws] == ["neuron", "product", "product"]
    assert found.independent == 1


def test_an_unknown_law_is_found_and_exact(dag: Dag) -> None:
    """Hide what is known: the nullspace itself must give laws with the same span."""
    from lawful.conservation.known import polynomial

    if dag.parameters > 40:
        dag = Architecture.parse("2-2-2 linear").to_dag()
    search = polynomial._Search(Gradients(dag, PRIME), 2, polynomial._Known(dag, "full", 1))
    laws, _, _ = search.run()
    assert all(law.kind == "polynomial" for law in laws if max(map(len, law.terms)) == 2)
    assert len(laws) == len(polynomial_laws(dag, 2))
    assert all(is_law(law, dag) for law in laws)


def test_sympy_agrees_that_a_law_is_conserved() -> None:
    """⟨∇h, ∇f⟩ expands to 0 for f = w·U2ᵀU1ᵀx with symbols everywhere."""
    dag = Architecture.parse("2-2-2 linear").to_dag()
    symbols = sympy.symbols(Wording(dag).symbols())
    first, second = sympy.Matrix(2, 2, symbols[:4]), sympy.Matrix(2, 2, symbols[4:])
    x, w = sympy.Matrix(sympy.symbols("x0 x1")), sympy.Matrix(sympy.symbols("w0 w1"))
    value = (w.T * second * first * x)[0]
    for law in polynomial_laws(dag, 2).laws:
        h = law.sympy(symbols)
        assert sympy.expand(sum(sympy.diff(h, s) * sympy.diff(value, s) for s in symbols)) == 0
        assert sympy.simplify(h - sympy.sympify(Wording(dag).expression(law))) == 0


def test_is_law_says_no() -> None:
    dag = Architecture.parse("2-2-2 linear").to_dag()
    assert not is_law(Law("polynomial", (), {(0, 0): Fraction(1), (5, 5): Fraction(-1)}), dag)


def test_misuse() -> None:
    with pytest.raises(LawfulError, match="at least 1"):
        polynomial_laws("2-2-2", 0)
    with pytest.raises(Unsupported, match="monomials"):
        polynomial_laws("20-20-20 relu", 5)


@pytest.mark.parametrize(
    ("text", "loss", "expected"),
    [
        ("2-3-2 relu", "full", "‖U1[:,1]‖² − ‖U2[1,:]‖²"),
        ("2-3-2 relu bias", "full", "‖U1[:,2]‖² + b1[2]² − ‖U2[2,:]‖²"),
        ("2-2-2 linear bias", "full", "⟨U1[:,0], U1[:,1]⟩ + b1[0]·b1[1] − ⟨U2[0,:], U2[1,:]⟩"),
        ("2-2-2 relu bias", "cross-entropy", "Σ_k b2[k]"),
        ("2-2-2-1 relu skip(0,1)", "full", "‖in(h1.1)‖² − ‖out(h1.1)‖²"),
        ("2-2-2 relu", "cross-entropy", "(Σ_k U2[0,k])·(Σ_k U2[1,k])"),
    ],
)
def test_laws_in_words(text: str, loss: str, expected: str) -> None:
    found = polynomial_laws(text, 2, loss=loss)
    assert expected in [Wording(found.dag).law(law) for law in found.laws]


def test_summaries_are_short_and_latex_is_latex() -> None:
    count = count_laws("10-8-10 linear")
    assert count.summary() == ["U1ᵀU1 − U2U2ᵀ   (symmetric 8×8: 36 laws)"]
    assert count_laws("2-9-1 linear").summary() == ["U1ᵀU1 − U2U2ᵀ   (symmetric 9×9: 24 laws)"]
    assert count_laws("2-9-1 linear").laws == 24
    assert count_laws("3-8-3 relu bias").summary() == ["‖U1[:,j]‖² + b1[j]² − ‖U2[j,:]‖²   (j = 0..7: 8 laws)"]
    wording = Wording(Architecture.parse("2-2-2 relu").to_dag())
    law = polynomial_laws("2-2-2 relu", 2).laws[0]
    assert wording.latex(law) == r"\lVert U_{1}[:,0] \rVert^{2} - \lVert U_{2}[0,:] \rVert^{2}"
    odd = Law("polynomial", (), {(0, 0, 1): Fraction(2), (3,): Fraction(-1, 3)})
    assert wording.law(odd) == "2·U1[0,0]²·U1[1,0] − 1/3·U1[1,1]"
    many = Law("polynomial", (), {(0, e): Fraction(1) for e in range(8)})
    assert wording.law(many).endswith("(2 more terms)")


def test_a_degree_that_would_take_hours_is_refused_with_an_estimate() -> None:
    with pytest.raises(Unsupported, match="minutes of elimination"):
        polynomial_laws("2-3-2 relu", 9)
