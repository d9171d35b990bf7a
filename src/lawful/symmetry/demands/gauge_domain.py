"""What each operator leaves of the gauges and shifts of its operands: one rule for each family of operators.

Every rule keeps to a subgroup of the true one: what it does not understand it pins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lawful.program.arrays import NUMPY
from lawful.program.domains.interpret import AbstractDomain
from lawful.program.index_map import IndexMap
from lawful.program.passes.patterns import find_centring
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.symmetry.demands.contractions import contract, convolve
from lawful.symmetry.demands.gauges import Gauges
from lawful.symmetry.demands.labels import compact, varying
from lawful.symmetry.demands.motion import Array, Motion, Shape, index_fields
from lawful.symmetry.demands.movements import MovementFollower
from lawful.symmetry.demands.parameter_axes import parameter_fields, picks_matrices, users_of
from lawful.symmetry.demands.shifts import Shift
from lawful.symmetry.demands.sums import add_constant, add_values, homogeneous, multiply, one_of, scale

# 32 MB in float64: masks and tables of positions, and no embedding.
KNOWN = 4_000_000  # entries of a constant that is worked out while reading


class GaugeDomain(MovementFollower, AbstractDomain[Motion]):
    """Motions: fields of labels, and demands on them. Parameters in `frozen` do not train and count as constants."""

    def __init__(
        self,
        program: Program,
        gauges: Gauges,
        frozen: Collection[str],
        padded: Collection[str],
        *,
        held: Collection[str] = (),
        names: Iterable[str] = (),
        centred: bool = False,
    ) -> None:
        """If `centred`, a skip around a linear map or gain, `x + Ax`, is read as one map: its gauges act on `I + A`.

        Tables in `padded` have a row that does not train; gauges of those in `held` would move it. `names` are the
        parameters in the module's order.
        """
        super().__init__(gauges)
        order = {name: number for number, name in enumerate(names)}
        self.program, self.frozen, self.padded, self.held, self.centred = program, frozen, padded, held, centred
        self.users = users_of(program)
        self.unknown: dict[str, int] = {}
        self.blind = _blind_nodes(program, self.users)
        self.axes = {  # in the module's own order, on which the signs of laws depend
            name: parameter_fields(gauges, node, self.users)
            for name, node in sorted(program.parameters.items(), key=lambda item: order.get(item[0], 0))
            if name not in frozen and not self.unseen(node)
        }

    # Leaves

    def leaf(self, node: Node) -> Motion:
        """Parameters move along their axes; constants and inputs stand still."""
        if node.op == "constant":
            value = node["value"]
            return Motion(node.shape, known=value, zero=node.kind == "f" and not value.any())
        if node.op == "input":
            return Motion(node.shape)
        name = node["name"]
        if node.op == "buffer" or name in self.frozen:
            return Motion(node.shape, known=self._held(name))
        if self.unseen(node):
            return Motion(node.shape)
        self.shapes[name] = node.shape
        self.fields[name] = self.axes[name]
        for field in self.axes[name] if name in self.held else ():
            self.gauges.pin(field, "padding", permutes=True)
        absorber = name if len(self.users[node]) == 1 and len(self.fields[name]) == 1 else None
        return Motion(node.shape, self.fields[name], raw=name, indices=index_fields(node.shape), absorber=absorber)

    def unseen(self, node: Node) -> bool:
        """Whether training never moves a parameter: only what is detached reads it."""
        return node not in self.program.outputs and all(user in self.blind for user in self.users[node])

    def _held(self, name: str) -> Array | None:
        tensor = self.program.tensors[name]
        if tensor.numel() > KNOWN or tensor.device.type == "meta":
            return None
        return np.asarray(tensor.detach().double().cpu().numpy())

    # Every other family

    def other(self, node: Node, *operands: Motion) -> Motion:
        """What does not move stays; everything else by its family."""
        if node in self.blind:
            return self._taken_for_data(node, operands)
        if not any(operand.moves or (operand.zero and operand.known is None) for operand in operands):
            known = self._worked_out(node, operands)
            still = Motion(node.shape, known=known, noise=node.traits.noise, centred=_centres_last(node))
            return self._with_scores(node, operands, still)  # scores that no gauge moves are scores
        # A sum alone may take an open square; for everyone else it is a power by now.
        if not (node.family is OperatorFamily.REDUCTION and node.traits.linear):
            operands = tuple(self.close(operand) for operand in operands)
        if node.family is not OperatorFamily.MOVEMENT and not _is_known_lookup(node, operands):
            self.read.update(
                {
                    str(leaf["name"]): None
                    for leaf in node.inputs
                    if leaf.op == "parameter" and leaf["name"] in self.fields
                }
            )
        result: Motion = getattr(self, f"follow_{node.family.value}")(node, *operands)
        only_reader = len(self.users[node]) == 1 and node not in self.program.outputs
        return self._with_scores(node, operands, replace(result, absorber=result.absorber if only_reader else None))

    def _worked_out(self, node: Node, operands: Sequence[Motion]) -> Array | None:
        """The value of an operator on known numbers, if it is small."""
        if node.size > KNOWN or node.family is OperatorFamily.OPAQUE or not operands:
            return None
        known = [operand.known for operand in operands]
        if any(value is None for value in known):
            return None
        with np.errstate(all="ignore"):
            arrays: list[Any] = [
                NUMPY.cast(value, operand.kind) for value, operand in zip(known, node.inputs, strict=True)
            ]
            return np.asarray(NUMPY.cast(node.operator.meaning(NUMPY, node.attributes, *arrays), node.kind))

    def _taken_for_data(self, node: Node, operands: Sequence[Motion]) -> Motion:
        """What training only sees detached: it asks nothing of gauges, but it tells positions apart."""
        for value in operands:
            for field in value.gauges:
                self.gauges.tell_apart(field, range(field.dim()))
        return Motion(node.shape)

    def close(self, value: Motion) -> Motion:
        """An open x² becomes a power."""
        return value if value.square_of is None else homogeneous(self, value.shape, value.square_of, 2.0)

    def _with_scores(self, node: Node, operands: Sequence[Motion], result: Motion) -> Motion:
        """Scores stay scores through what works entry by entry; another operand may tell heads apart."""
        if node.family not in _KEEPS_SCORES or result.scores is not None:
            return result
        marked = [number for number, operand in enumerate(operands) if operand.scores is not None]
        scores = operands[marked[0]].scores if len(marked) == 1 else None
        if scores is None or tuple(scores.heads.shape) != node.shape:
            return result
        for number, source in enumerate(node.inputs):
            if number != marked[0]:
                scores = scores.beside(source.shape, () if scores.soft else list(self._tables(source)))
        if "axis" in node.attributes:
            return replace(result, scores=scores.soften(node["axis"]))
        return replace(result, scores=scores)

    def _tables(self, node: Node) -> Sequence[str]:
        """The parameters whose entries, looked up and put in place, make up a value."""
        result, waiting, seen = [], [node], {node}
        while waiting:
            source = waiting.pop()
            if source.op == "parameter":
                result.append(source["name"])
            elif source.family in _KEEPS_SCORES or source.family in (OperatorFamily.MOVEMENT, OperatorFamily.LOOKUP):
                fresh = [other for other in source.inputs if other not in seen]
                seen.update(fresh)
                waiting += fresh
        return result

    # Entry by entry

    def follow_elementwise(self, node: Node, *operands: Motion) -> Motion:
        """Homogeneous functions pass scales; of others only the identity passes (and permutations do)."""
        traits = node.traits
        if len(operands) > 1 or node.kind != "f":
            return self._seen(node, *operands)
        (x,) = operands
        if traits.degree is None:
            x = self.settle(x)
            self.pin(node.op, x, permutes=True)
            return Motion(node.shape, x.gauges)  # pinned, but they still permute
        # A square waits for its sum: orthogonal maps keep a norm, and no power of scales says that.
        if traits.degree == 2:
            return Motion(node.shape, square_of=self.settle(x))
        return homogeneous(self, node.shape, x, float(traits.degree))

    def _seen(self, node: Node, *operands: Motion) -> Motion:
        """An operator that every gauge and shift changes; permutations pass if it has one operand of its own size and
        works entry by entry (along an axis of its own, as a sort does, nothing passes)."""
        moving = [operand for operand in operands if operand.moves]
        alone = len(moving) == 1 and moving[0].shape == node.shape and "axis" not in node.attributes
        others = (
            all(operand is moving[0] or torch.Size(operand.shape).numel() == 1 for operand in operands)
            if moving
            else True
        )
        self.pin(node.op, *moving, permutes=alone and others)
        return Motion(node.shape, moving[0].gauges if alone and others else ())

    def follow_addition(self, node: Node, x: Motion, y: Motion) -> Motion:
        """Both move alike; a mean that is taken off takes constants with it; numbers are absorbed by biases."""
        centring = find_centring(node)
        if centring is not None:
            return self._follow_centring(node, x if node.inputs[0] is centring[0] else y, centring[1])
        for value, constant in ((x, y), (y, x)):
            if constant.known is not None and not constant.zero:
                return add_constant(self, node.shape, value, constant.known)
        skip = self._skip(node)
        if skip is not None:
            return replace(x if skip == 0 else y, absorber=None)
        return add_values(self, node.shape, x, y)

    def _follow_centring(self, node: Node, x: Motion, axes: Sequence[int]) -> Motion:
        """`x − mean x`: constants along the axes are not seen."""
        x = self.settle(x)
        self.shifts.unseen(x.shifts, axes)
        for field in x.gauges:
            if set(varying(field)) & set(axes):
                self.level(field, axes)
        return Motion(x.shape, x.gauges, centred=_centres_last(node))

    def _skip(self, node: Node) -> int | None:
        """Which operand of `x + Ax` or `x + gx` is the map of the other, with a weight that nothing else reads."""
        for place in (0, 1) if self.centred else ():
            image, value = node.inputs[place], node.inputs[1 - place]
            if image.shape != node.shape or value.shape != node.shape or len(self.users[image]) != 1:
                continue
            if image.family is OperatorFamily.ADDITION:  # a bias
                image = next(
                    (operand for operand in image.inputs if value in operand.inputs and len(self.users[operand]) == 1),
                    image,
                )
            if value not in image.inputs or len(image.inputs) != 2 or image.inputs[0] is image.inputs[1]:
                continue
            weight = image.inputs[1 - image.inputs.index(value)]
            if len(self.users[weight]) != 1:
                continue
            if image.family is OperatorFamily.PRODUCT and weight.family is OperatorFamily.MOVEMENT:
                weight = weight.inputs[0]
            if weight.op != "parameter" or weight["name"] in self.frozen or len(self.users[weight]) != 1:
                continue
            if image.family is OperatorFamily.PRODUCT:
                self.gauges.recentre(weight["name"], 1.0)
                return place
            if _maps_last_axis(image, weight):
                self.gauges.recentre(weight["name"], np.eye(weight.shape[0]))
                return place
        return None

    def follow_product(self, node: Node, x: Motion, y: Motion) -> Motion:
        """Scales multiply; a fixed number changes nothing."""
        for value, factor in ((x, y), (y, x)):
            if factor.known is not None and factor.known.size == 1 and value.shape == node.shape:
                number = float(factor.known.flat[0])
                return Motion(node.shape, zero=True) if number == 0 else scale(self, value, number)
        return multiply(self, node.shape, x, y)

    # Sums along axes

    def follow_contraction(self, node: Node, x: Motion, y: Motion) -> Motion:
        """Gauges of what is summed cancel."""
        return (contract if "spec" in node.attributes else convolve)(self, node, x, y)

    def follow_reduction(self, node: Node, x: Motion) -> Motion:
        """One scale along the axes passes; a sum of squares is a norm, which orthogonal maps keep."""
        traits = node.traits
        axes = list(node.attributes.get("axes", (node.attributes.get("axis"),)))
        if node.kind == "f" and traits.linear:
            return self._sum(node, x, axes)
        if traits.degree is None or traits.degree > 1:
            self.pin(node.op, x)
            return Motion(node.shape)
        x = self.settle(x)
        asks_infinity = traits.shift == 1 and self._asks_infinity(node)  # which no shift makes or ends
        shifts = self._constant_along(x.shifts, axes, node.shape) if traits.shift == 1 and not asks_infinity else ()
        if traits.shift is None:
            self.shifts.drop(x.shifts)
        elif traits.shift == 0:
            self.shifts.unseen(x.shifts, axes)
        for field in x.gauges:
            self.gauges.diagonal(field)
        level = tuple(self.level(field, axes) for field in x.gauges)
        if traits.degree == 0:
            return Motion(node.shape)
        return Motion(node.shape, level, shifts, zero=x.zero)

    def _asks_infinity(self, node: Node) -> bool:
        """Whether a value is only compared with infinity, as attention asks of scores that a mask may have left out."""
        return node not in self.program.outputs and all(
            user.family is OperatorFamily.COMPARISON
            and all(operand is node or (operand.op == "constant" and bool(np.isinf(operand["value"]).all()))
                    for operand in user.inputs)
            for user in self.users[node]
        )  # fmt: skip

    def _constant_along(self, shifts: Sequence[Shift], axes: Sequence[int], shape: Shape) -> tuple[Shift, ...]:
        """Shifts that must be constant along axes, with size 1 there."""
        result = []
        for shift in self.shifts.alive(shifts):
            if shift.masked:
                self.shifts.vanish(shift.labels)
                continue
            self.shifts.unseen([shift], axes)
            for alive in self.shifts.alive([shift]):
                labels, phases = alive.labels, alive.phases
                for axis in axes:
                    labels, phases = labels.narrow(axis, 0, 1), phases.narrow(axis, 0, 1)
                result.append(alive.move(labels, phases))
        return tuple(result)

    def _sum(self, node: Node, x: Motion, axes: Sequence[int]) -> Motion:
        if x.square_of is not None:
            return self._sum_of_squares(node, x.square_of, axes)
        x = self.settle(x)
        if x.zero:
            return Motion(node.shape, zero=True)
        gauges = tuple(self.level(field, axes) for field in x.gauges)
        count = float(np.prod([x.shape[d] for d in axes]))
        shifts: list[Shift] = []
        for shift in self.shifts.alive(x.shifts):
            steady = shift.constant and not set(varying(shift.labels)) & set(axes)
            for d in axes:
                shift = self.shifts.sum_along(shift, d)
            shifts += self.shifts.scale([shift], count) if steady else self.shifts.weigh([shift], ())
        return Motion(node.shape, gauges, tuple(shifts))

    def _sum_of_squares(self, node: Node, x: Motion, axes: Sequence[int]) -> Motion:
        """Maps along the axes must keep `Σ x²`; what acts across them passes with its square."""
        self.shifts.drop(x.shifts)
        gauges = []
        for field in x.gauges:
            if varying(field) and set(varying(field)) <= set(axes):
                self.gauges.orthogonal(field, axes)
            else:
                gauges.append(self.level(self.gauges.power(field, 2.0), axes))
        return Motion(node.shape, tuple(gauges))

    def follow_normalisation(self, node: Node, x: Motion) -> Motion:
        """`x/√(mean x² + ε)`: orthogonal maps along its axes commute with it (those that fix the vector 1, if it is
        centred), ε pins scales; constants along the axes are not seen where it is centred, nor by a softmax."""
        x = self.settle(x)
        if "axis" in node.attributes:
            for field in x.gauges:
                self.gauges.pin(field, node.op, permutes=True)
                self._keep_lines(field, node["axis"])
            self.shifts.unseen(x.shifts, [node["axis"]], softmax=True)
            return Motion(node.shape, x.gauges)  # pinned, but they still permute
        axes, centre = list(node["axes"]), bool(node["centre"])
        passing = []
        for field in x.gauges:
            inside = varying(field) and set(varying(field)) <= set(axes)
            if not inside:
                self.gauges.pin(field, node.op, permutes=True)
                self.gauges.blocks(field, axes)
            elif self.gauges.means and centre:
                self.gauges.centre(field, axes)
                continue
            else:
                self.gauges.orthogonal(field, axes)
                if centre:
                    self.gauges.keep_ones(field)
            passing.append(field)
        if centre:
            self.shifts.unseen(x.shifts, axes)
        else:
            self.shifts.drop(x.shifts)
        return Motion(node.shape, tuple(passing), centred=_centres_last(node))

    def _keep_lines(self, field: torch.Tensor, axis: int) -> None:
        """Permutations of what a softmax reads: entries of one line stay in one line, whoever looks at them later."""
        others = [d for d in varying(field) if d != axis]
        if axis not in varying(field) or not others:
            return
        if self.gauges.share_axis(field, axis):
            self.gauges.blocks(field, [axis])
        else:  # lines of several spaces: all change places alike
            self.alike(field, axis)

    # Choices

    def follow_choice(self, node: Node, *operands: Motion) -> Motion:
        """One of two values: scales pass that both have and that the condition does not see."""
        if len(operands) == 1:
            return self._seen(node, *operands)
        if len(operands) == 3:
            condition, *values = operands
            usual = node.inputs[0].traits.finite
            # `where(isnan(x), 0, x)`: of finite values one branch alone is ever taken, so the other demands nothing.
            if usual is not None:
                return self.spread(values[0 if usual else 1], node.shape)
            self.pin(node.op, condition)
            lead = len(node.shape) - len(condition.shape)
            axes = [lead + d for d, size in enumerate(condition.shape) if size > 1]
            for value in values:
                for field in self.spread(value, node.shape).gauges:
                    self.gauges.tell_apart(field, axes)
        else:
            values = list(operands)
        if any(motion.known is not None and not motion.zero for motion in values):
            return self._seen(node, *values)
        return one_of(self, node.shape, *values)

    def follow_comparison(self, node: Node, *operands: Motion) -> Motion:
        """Degree 0 in both operands together: positive scales do not show."""
        if node.traits.finite is not None:
            return Motion(node.shape)
        if node.traits.degree != 0 or any(operand.known is not None and not operand.zero for operand in operands):
            return self._seen(node, *operands)
        return homogeneous(self, node.shape, one_of(self, node.shape, *operands), 0.0)

    # Positions that are data

    def follow_lookup(self, node: Node, table: Motion, index: Motion, *rest: Motion) -> Motion:
        """`z[s] = W[ids[s]]`: what acts on all slices alike passes, and what acts along the positions is pinned.

        Positions that are numbers (a buffer's) make it a movement: which one is seen by looking positions up.
        """
        if _is_known_lookup(node, (table, index, *rest)):
            where: Any = np.arange(node.inputs[0].size).reshape(node.inputs[0].shape)
            at = node.operator.meaning(NUMPY, node.attributes, where, NUMPY.cast(index.known, "i"))
            return self.move(node, table, IndexMap.of(np.asarray(at)))
        if rest or node.shape == node.inputs[1].shape:
            return self.opaque_call(node, table, index, *rest)
        axis, count = int(node["axis"]), node.inputs[1].rank
        self.pin(node.op, index)
        size = (*table.shape[:axis], *(1,) * count, *table.shape[axis + 1 :])
        if table.raw is None:
            x = self.settle(table)
            self.shifts.drop(x.shifts)
            gauges = tuple(self.alike(field, axis).reshape(size).expand(node.shape) for field in x.gauges)
            return Motion(node.shape, gauges)
        if picks_matrices(node, self.users):
            return self._dealt(node, table)
        passing = []
        for field in table.gauges:
            if axis in varying(field):
                self.gauges.pin(field, node.op)
            else:
                passing.append(field.narrow(axis, 0, 1).reshape(size).expand(node.shape))
        whole = axis == 0 and len(table.shape) == 2 and table.shape == self.shapes[table.raw]
        ordered = whole and all(map(torch.equal, table.indices, index_fields(table.shape)))
        shifts: tuple[Shift, ...] = ()
        if ordered and table.raw not in self.padded:
            shifts = self._table_shifts(node, table)
        else:
            self.pin(node.op, replace(table, gauges=()))
        return Motion(node.shape, tuple(passing), shifts)

    def _dealt(self, node: Node, table: Motion) -> Motion:
        """A matrix for each row, picked by data: rows are dealt out, in a way that belongs to who picks.

        (If another choice of matrices reads the same rows, its rows are dealt out otherwise.)
        """
        self.pin(node.op, replace(table, gauges=()))
        rows, count = node.shape[0], table.shape[0]
        # Any dealing leaves a subgroup. One that the picking value's identity seeds keeps together what one router
        # picks, and parts what two routers pick.
        generator = np.random.default_rng(int.from_bytes(node.inputs[1].identity[:8], "big"))
        owner = torch.from_numpy(generator.permutation(np.arange(rows) * count // rows))
        return Motion(node.shape, tuple(compact(field[owner]) for field in table.gauges), dealt=owner)

    def _table_shifts(self, node: Node, table: Motion) -> tuple[Shift, ...]:
        """If every row of W moves by one vector, so does z, for all data; other shifts of W depend on the ids."""
        name, shape = str(table.raw), node.shape
        shifts = self.shifts.parameter(name, table.shape, "rows", [1])
        if shifts is None:
            return ()
        if len(shifts) == 1:
            rest = shifts[
                0
            ]  # (a vector over the ids that are not known, so that two tables read by one of them can part)
            self.shifts.directions[name] = [rest, self.shifts.common(rest, [1], table.shape)]
        rest, mean = self.shifts.directions[name]
        still = torch.zeros((), dtype=torch.int64).expand(shape)
        ids = self.shifts.phase_of((node.inputs[1].identity.hex(), "ids"), shape, range(len(shape) - 1))
        return Shift(mean.labels[0].expand(shape), still), Shift(rest.labels[0].expand(shape), ids)

    def opaque_call(self, node: Node, *operands: Motion) -> Motion:
        """What no rule follows: every gauge and shift is seen, and the call is named."""
        name = str(node.attributes.get("name", node.op))
        self.unknown[name] = self.unknown.get(name, 0) + 1
        self.pin(name, *operands)
        return Motion(node.shape)

    follow_opaque = opaque_call


_KEEPS_SCORES = (
    OperatorFamily.ELEMENTWISE,
    OperatorFamily.ADDITION,
    OperatorFamily.PRODUCT,
    OperatorFamily.NORMALISATION,
    OperatorFamily.CHOICE,
)


def _blind_nodes(program: Program, users: Any) -> set[Node]:
    """Nodes whose values training only sees detached, and those that detach."""
    nodes: set[Node] = set()
    for node in reversed(program.nodes):
        if node.family is OperatorFamily.LEAF:
            continue
        unread = bool(users[node]) and all(user in nodes for user in users[node])
        if not node.traits.gradient or (unread and node not in program.outputs):
            nodes.add(node)
    return nodes


def _is_known_lookup(node: Node, operands: Sequence[Motion]) -> bool:
    """Whether a lookup reads positions that are numbers: a movement, whose positions are seen by looking them up."""
    if node.family is not OperatorFamily.LOOKUP or len(operands) != 2 or operands[1].known is None:
        return False
    size, at = node.inputs[0].shape[int(node["axis"])], np.asarray(operands[1].known, dtype=np.float64)
    return bool(((at >= -size) & (at < size)).all())  # (a buffer of a stranger's may hold anything)


def _centres_last(node: Node) -> bool:
    """Whether a value sums to zero along its last axis, by what made it."""
    centring = find_centring(node)
    axes = centring[1] if centring is not None else node["axes"] if node.attributes.get("centre") else ()
    return tuple(axes) == (len(node.shape) - 1,)


def _maps_last_axis(product: Node, weight: Node) -> bool:
    """Whether a contraction is `x ↦ A x` along an axis that stays where it was, with a square A."""
    if "spec" not in product.attributes or weight.rank != 2 or weight.shape[0] != weight.shape[1]:
        return False
    operands, out = product["spec"].split("->")
    place = product.inputs.index(weight)
    matrix, other = operands.split(",")[place], operands.split(",")[1 - place]
    return matrix[0] not in other and other.replace(matrix[1], matrix[0]) == out
