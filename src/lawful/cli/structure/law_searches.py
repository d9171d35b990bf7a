"""What `lawful laws` looks for on request: polynomial laws, laws with logarithms, the Riemannian reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.conservation import LawCount
    from lawful.conservation.factorisation import NetworkReduction
    from lawful.conservation.known.logarithmic import LogarithmicLaws
    from lawful.conservation.known.polynomial import PolynomialLaws
    from lawful.conservation.wording import ModuleWording, Wording


def polynomials(
    source: Any,
    degree: int,
    loss: str,
    seed: int,
    shape: tuple[int, ...] | None,
    mode: str | None,
    classes_axis: int | None,
    tell: Callable[[str, float], None],
) -> PolynomialLaws:
    """`--degree`, for graphs and for modules."""
    from lawful.conservation.known.polynomial import polynomial_laws
    from lawful.network import Architecture, Dag, Mlp

    if not isinstance(source, (Architecture, Dag, Mlp)):
        from lawful.conservation.count import as_graph

        graph = as_graph(source, shape, mode or "train")
        if graph is None:
            from lawful.conservation.known.module_polynomial import module_polynomial_laws

            return module_polynomial_laws(
                source, shape, degree, loss=loss, mode=mode or "train", classes_axis=classes_axis, seed=seed
            )
        source = graph
    watch = lambda what, done, total: tell(what, done / total)  # noqa: E731
    return polynomial_laws(source, degree, loss=loss, seed=seed, progress=watch)


def beyond_polynomials(
    source: Any,
    degree: int,
    loss: str,
    seed: int,
    shape: tuple[int, ...] | None,
    mode: str | None,
    classes_axis: int | None,
) -> LogarithmicLaws:
    """`--logarithms`."""
    from lawful.conservation.count import as_graph
    from lawful.conservation.known.logarithmic import logarithmic_laws
    from lawful.network import Architecture, Dag, Mlp

    graph = source if isinstance(source, (Architecture, Dag, Mlp)) else as_graph(source, shape, mode or "train")
    if graph is None:
        from lawful.conservation.known.module_polynomial import module_logarithmic_laws

        return module_logarithmic_laws(
            source, shape, degree, loss=loss, mode=mode or "train", classes_axis=classes_axis, seed=seed
        )
    return logarithmic_laws(graph, degree, loss=loss, seed=seed)


def reduction_of(
    source: Any, count: LawCount, seed: int, shape: tuple[int, ...] | None, mode: str | None
) -> NetworkReduction:
    """At the network's weights, or at PyTorch's default ones for an architecture."""
    from lawful.conservation.count import as_graph
    from lawful.conservation.factorisation import reduce_network
    from lawful.network import Architecture, Dag, Mlp

    if count.dag is None:
        from lawful.conservation.module_reduction import reduce_module

        return reduce_module(source, shape, mode=mode or "train", seed=seed)
    graph = source if isinstance(source, (Architecture, Dag, Mlp)) else as_graph(source, shape, mode or "train")
    if graph is None or isinstance(graph, Architecture):
        graph = Architecture.parse(str(source)).initialise(seed=seed)
    return reduce_network(count, graph.to_dag().theta)


def wording_of(found: PolynomialLaws) -> Wording | ModuleWording:
    """The names of the weights that polynomials speak of."""
    from lawful.conservation.wording import ModuleWording, Wording

    return ModuleWording(found.places) if found.dag is None else Wording(found.dag)


def polynomials_json(found: PolynomialLaws) -> dict[str, Any]:
    """Polynomial laws as JSON."""
    wording = wording_of(found)
    return {
        "degree": found.degree,
        "count": len(found),
        "independent": found.independent,
        "laws": [wording.law(law) for law in found.laws],
        "expressions": [wording.expression(law) for law in found.laws],
        "latex": [wording.latex(law) for law in found.laws],
        "monomials": found.monomials,
        "blocks": found.blocks,
    }
