"""Two checkpoints of one architecture: aligned, compared, and told apart.

In come two files of weights and the module that they belong to (`opening`), read once as a program with the group that
acts on its weights (`architecture`, `group/`). Out come an alignment (`align/`, `placement.py`), a verdict with
evidence (`verdict.py`, `compare/`), a mean (`merge.py`), a relation (`relations/`), a hash of the orbit (`identity/`)
or another member of it (`representative.py`). Modules that are written differently are brought to one form first
(`rewrite/`).
"""

from lawful.checkpoints.placement import Aligned

__all__ = [
    "Aligned",
]
