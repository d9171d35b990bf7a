"""A builder that writes programs in one normal form: what is spelled in two ways becomes the same nodes.

- Equal nodes are one (hash-consing), so ties and repeated subexpressions need no search.
- A node whose operands are constants is evaluated at once. Shape arithmetic and masks disappear by this alone.
- Movements in a row are one, and one that moves nothing is none.
- Operands of elementwise operators have one rank, and size 1 along axes where they only repeat.
- Operands that commute stand in the order of what they compute.
- A little algebra, in `add`, `mul`, `power`, `maximum`, `where`: each rule holds for all reals, keeps NaN and
  infinities where they were, and computes no number that is not exact, so that no proof rests on a rounding here.

Folding does round, as every evaluation in float64 does; `notes` count it.

`nodes` has hash-consing and folding, `movements` what only moves entries, `algebra` sums, products and choices, and
`contractions` sums along axes with the whole `Builder`: each class adds one idea to the one before it.
"""

from lawful.program.builder.contractions import Builder as Builder
from lawful.program.builder.nodes import FOLDED as FOLDED
from lawful.program.builder.nodes import OPAQUE as OPAQUE
from lawful.program.builder.nodes import Operand as Operand
