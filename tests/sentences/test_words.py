"""Definite wording stands in `lawful.sentences` alone, where each sentence has a falsifier.

Whatever shows results (`report/`, `api/`, `cli/`) is searched for words that state something about a network. What is
found must be listed here with the reason why it is no sentence of its own: a label, a question, what is *not* known.
The verifier words what it has checked itself, and imports nothing: forgeries attack its statements in `tests/verify`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import lawful

SOURCE = Path(lawful.__file__).parent
DEFINITE = re.compile(
    r"the same function|\bnever (change|fire|move|go|bring|below|taken|bend|active)|[Nn]one of the|\bcan go\b"
    r"|\bno (output|weight|sign|neuron|channel)s? |can be (removed|left out)|\bfor every (input|image)|\bEQUAL\b"
    r"|\bproved\b|\bcertified\b|\b(is|are) (dead|needed|identical|locked|conserved)\b"
)
MESSAGES = re.compile(r"Option|Help|Argument|Unsupported|Error$|InvalidNetwork|warn|Typer|help")

LABEL = "a label of numbers that a certificate or a measurement gives"
STATUS = "the status of an answer, beside its own sentence"
OPEN = "says what is not known, or not done"
QUESTION = "a question or an instruction, no answer"
DEFINITION = "what a word or a key means"
STORY = "the demo's story: every step has a certificate that was re-checked before it is told"
DATA = "counts on given samples, named as such"
REASON = "a reason beside a sentence: what a rule of pruning is about"
ALLOWED: dict[tuple[str, str], str] = {  # (start of a path, part of a text) -> reason
    ("report/audit/", "was found that can go"): OPEN,
    ("report/audit/audit_page.py", "were found that can go"): OPEN,
    ("report/audit/audit_page.py", "it is not known"): OPEN,
    ("report/audit/", "here it can go"): LABEL,
    ("report/audit/", "What can go"): LABEL,
    ("report/audit/", "What is locked"): LABEL,
    ("report/audit/audit", "the same function"): LABEL,
    ("report/audit/audit_page.py", "for every input"): LABEL,
    ("report/audit/", "can go"): LABEL,
    ("report/audit/audit_page.py", "never bends"): LABEL,
    ("report/audit/audit_page.py", "Balances are conserved"): DEFINITION,
    ("report/audit/audit", "never fire"): DATA,
    ("report/audit/audit_page.py", "is not proved"): OPEN,
    ("report/audit/demo.py", "The other steps are proved"): STORY,
    ("report/audit/demo.py", "every other step is proved"): STORY,
    ("report/audit/demo.py", "up to rounding"): STORY,
    ("report/audit/demo.py", "proved   lawful verify"): QUESTION,
    ("report/checkpoints/checkpoints.py", "{} is dead"): REASON,
    ("report/checkpoints/diff.py", "Are they the same function?"): QUESTION,
    ("report/checkpoints/diff.py", "locked for gradient flow"): LABEL,
    ("report/checkpoints/relatives.py", "undecided: none of the"): OPEN,
    ("report/checkpoints/relatives.py", "whether two are related"): QUESTION,
    ("report/page/charts.py", "can go"): LABEL,
    ("report/page/charts.py", "left open"): OPEN,
    ("report/page/charts.py", "never below"): LABEL,
    ("report/page/explorer/", "hidden neurons can go (ringed"): LABEL,
    ("report/page/explorer/", "the same function ({})."): LABEL,
    ("report/page/explorer/", "proved for any weights"): STATUS,
    ("report/page/terms.py", ""): DEFINITION,
    ("report/structure/components.py", "the tolerance given"): OPEN,
    ("report/structure/distance.py", "neither proved nor violated"): OPEN,
    ("report/structure/laws.py", "ot proved"): OPEN,
    ("report/structure/laws.py", "nothing is proved"): OPEN,
    ("report/structure/laws.py", "is not proved"): OPEN,
    ("report/structure/laws.py", "What can go"): LABEL,
    ("report/structure/network.py", "neurons"): LABEL,
    ("report/structure/pruning.py", "constant for every input"): REASON,
    ("report/structure/pruning.py", "never active"): REASON,
    ("report/structure/pruning.py", "undecided"): OPEN,
    ("report/structure/pruning.py", "was not decided"): OPEN,
    ("report/structure/pruning", "for every input"): "where a bound holds: a part of pruning.moves_at_most",
    ("report/structure/pruning.py", "certified bound"): LABEL,
    ("report/structure/pruning.py", "no output moves by more than"): LABEL,
    (
        "report/structure/pruning.py",
        "for 99% of inputs",
    ): "a confidence bound, whose coverage tests/pruning measures",
    ("report/structure/pruning.py", "certified: {}"): STATUS,
    ("report/structure/symmetries.py", "too many"): OPEN,
    ("report/structure/symmetries.py", "See what can go"): QUESTION,
    ("report/training/truncation.py", "no signs settled"): OPEN,
    ("api/audit.py", "which parameters are"): QUESTION,
    ("api/demo.py", "have one value for every image"): STORY,
    ("api/module_audit.py", "where training can go"): QUESTION,
    ("cli/evidence.py", ""): "how to get evidence",
    ("cli/help.py", ""): "help",
    ("cli/prune.py", "looking for what can be removed"): OPEN,
    ("cli/output.py", "not certified"): OPEN,
}


def texts(source: str) -> Iterator[str]:
    """Every text of a file but docstrings, errors, and the help of options."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and node.body and isinstance(node.body[0], ast.Expr):
            skipped.add(id(node.body[0].value))
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and MESSAGES.search(ast.unparse(node.func))):
            skipped |= {id(part) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def definite(source: str) -> list[str]:
    """The texts of a file that state something."""
    return [text for text in texts(source) if " " in text.strip() and DEFINITE.search(text)]


def test_the_scan_sees_statements() -> None:
    assert definite('words = f"{n} neurons can go"')
    assert definite('words = "no weight is locked"')
    assert not definite(
        'def f():\n    """The same function, proved."""\n    raise ValueError("none of the files is proved")'
    )


def test_definite_words_stand_in_one_place() -> None:
    found, used = [], set()
    for folder in ("report", "api", "cli"):
        for path in sorted((SOURCE / folder).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            for text in definite(path.read_text(encoding="utf-8")):
                reasons = {key for key in ALLOWED if name.startswith(key[0]) and key[1] in text}
                used |= reasons
                found += [] if reasons else [f"{name}: {text[:110]!r}"]
    assert not found, "word these in lawful.sentences, with a falsifier:\n" + "\n".join(found)
    assert used == set(ALLOWED), f"listed and not found: {sorted(set(ALLOWED) - used)}"
