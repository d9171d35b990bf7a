"""What a person types, as the parser takes it: old names, words without an option, and hints for what fits nowhere."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# One letter means one thing in every subcommand; help lists them, so they are few.
SHORT = {
    "--out": "-o",
    "--data": "-d",
    "--box": "-b",
    "--input": "-i",
    "--model": "-m",
    "--activation": "-a",
    "--certificate": "-c",
    "--seed": "-s",
    "--seconds": "-t",
    "--json": "-j",
}
# The command line says what Python says; these are older names, which still work.
OLD = {
    "--time": "--seconds",
    "--with": "--other",
    "--most": "--top",
    "--timeout": "--seconds",
    "--output-file": "--out",
    "--input-shape": "--input",
    "--target": "--balance",
    "--optimisers": "--optimizers",
}
RENAMED = ("--time", "--with")  # were the names once: a line on stderr says so; the others are only other spellings
DATA = re.compile(r".+\.(npz|csv)", re.I)
OPTIMIZERS = re.compile(r"(flow|(sgd|adam\w*)(:[^,]+)?)(,(flow|(sgd|adam\w*)(:[^,]+)?))*")
SETS = ("digits", "wine", "iris", "breast_cancer", "moons")


def without_verbose(words: Sequence[str]) -> tuple[list[str], bool]:
    """The words without `-v`, which every subcommand understands, and whether it was there.

    >>> without_verbose(["show", "-v", "a.npz", "--", "-v"])
    (['show', 'a.npz', '--', '-v'], True)
    """
    end = list(words).index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word not in ("-v", "--verbose")]
    return [*kept, *words[end:]], len(kept) < end


def options_of(command: Any) -> dict[str, Any]:
    """Every spelling of an option of a subcommand, with its option."""
    named = [each for each in command.params if each.param_type_name == "option"]
    return {spelling: each for each in named for spelling in (*each.opts, *each.secondary_opts)}


def add_short_forms(command: Any) -> None:
    """`-o` beside `--out`, and so on, wherever the subcommand has the option and the letter is free."""
    taken = options_of(command)
    short_forms = SHORT if "--out" in taken else SHORT | {"--html": "-o"}  # what writes only a page writes it with -o
    for each in command.params:
        short = short_forms.get(each.opts[0]) if each.param_type_name == "option" else None
        if short is not None and short not in taken:
            each.opts.append(short)  # help sorts them: the short one stands first


def understood(command: Any, words: Sequence[str]) -> list[str]:
    """The words with old names replaced, and with an option before data and optimizers that stand without one.

    `lawful separate points.npz` has no network to take the word for, so it can only be the data.
    """
    known = options_of(command)
    renamed = list(_current_names(command, list(words), known))
    renamed = _certificate_of(renamed, known)
    loose = [place for place, is_value in _free_words(renamed, known) if not is_value]
    questions = [place for place in loose[:-1] if renamed[place].lower().endswith((".vnnlib", ".vnnlib.gz"))]
    if (
        command.name == "check" and len(questions) == 1 and "--" not in words
    ):  # the question may stand before the network
        renamed.append(renamed.pop(questions[0]))
        loose = [place for place, is_value in _free_words(renamed, known) if not is_value]
    room = [each for each in command.params if each.param_type_name == "argument"]
    if "--" in words or any(each.nargs != 1 for each in room):  # after -- a word is what it is
        return renamed
    for kind, option in ((_is_optimizers, "--optimizers"), (_is_data, "--data")):
        if len(loose) <= len(room) or option not in known or option in renamed:
            continue
        fits = [place for place in loose if kind(renamed[place], option, known)]
        if sum(renamed[place].lower().endswith(".npz") for place in loose) > 1 and room:
            fits = [place for place in fits if place != loose[0]]  # of several .npz files the network comes first
        if fits:  # a CSV file is never a network
            place = next((each for each in fits if renamed[each].lower().endswith(".csv")), fits[-1])
            renamed[place] = f"{option}={renamed[place]}"
            loose.remove(place)
    return renamed


def _certificate_of(words: list[str], known: dict[str, Any]) -> list[str]:
    """`-o x.json` where -o would write a page: JSON is no page, so it is the certificate that is meant."""
    if "--certificate" not in known or known.get("-o") is not known.get("--html"):
        return words
    return [
        "-c" if word == "-o" and after.lower().endswith(".json") else word
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]


def _is_optimizers(word: str, option: str, known: dict[str, Any]) -> bool:
    return OPTIMIZERS.fullmatch(word) is not None


def _is_data(word: str, option: str, known: dict[str, Any]) -> bool:
    named = word in SETS and "iris" in (known[option].help or "")
    to_be_written = "--out" in known and "--activation" in known and not Path(word).exists()  # a network, as .npz
    return named or (DATA.fullmatch(word) is not None and (word.lower().endswith(".csv") or not to_be_written))


def _free_words(words: Sequence[str], known: dict[str, Any]) -> Iterator[tuple[int, bool]]:
    """The places of words that are no options, and whether each is the value of the option before it."""
    awaited = False
    for place, word in enumerate(words):
        if awaited or not word.startswith("-") or word == "-":
            yield place, awaited
            awaited = False
        else:
            option = known.get(word)
            awaited = option is not None and not option.is_flag


def _current_names(command: Any, words: list[str], known: dict[str, Any]) -> Iterator[str]:
    awaited = False
    for place, word in enumerate(words):
        if word == "--":
            yield from words[place:]
            return
        name, equals, value = word.partition("=")
        new = OLD.get(name)
        if not awaited and new in known and name not in known:
            if name in RENAMED:
                print(f"lawful: {name} is now called {new} (the old name still works)", file=sys.stderr)
            word, name = f"{new}{equals}{value}", str(new)
        option = known.get(name)
        awaited = not awaited and not equals and option is not None and not option.is_flag
        yield word


def hint_for(message: str, command: Any) -> str:
    """What to type instead of a word that fits nowhere, or nothing."""
    known = options_of(command)
    unknown = re.search(r"No such command '(.+?)'", message)
    if unknown is not None:
        return _instead_of(unknown[1])
    if "Missing argument 'NETWORK'" in message:
        return f'A file, module:factory or an architecture: lawful {command.name} "3-4-2 relu bias"'
    surplus = re.search(r"unexpected extra argument(?:s|\(s\))? \((.+)\)", message)
    if surplus is not None:
        word = surplus[1].split()[0]
        if ARCHITECTURE_WORD.fullmatch(word):
            return f'An architecture is one word, in quotes: lawful {command.name} "3-4-2 {surplus[1]}"'
        if "--out" not in known and Path(word).is_file():
            return "It takes fewer files; for many at once: lawful fingerprint FILES, or lawful sweep"
        if "--out" in known and "." in word:
            return f"To write the result there: -o {word}"
        if "--box" in known and re.fullmatch(r"[-+.\deE]+[,:][-+.\deE,:]+", word):
            return f"For a box of inputs: --box={word}"
        return ""
    wrong = re.search(r"No such option: (--?[^\s(]+)", message)
    if wrong is None:
        return ""
    meaning = MEANINGS.get(wrong[1].lstrip("-"), "")
    if meaning in known:
        return f"Did you mean {meaning}?"
    if "Possible option" not in message and "Did you mean" not in message:
        near = difflib.get_close_matches(wrong[1], [each for each in known if each.startswith("--")], 2, 0.5)
        return f"Did you mean {' or '.join(near)}?" if near else ""
    return ""


def _instead_of(word: str) -> str:
    """The subcommand for a word that is none: a network, or what others call the question."""
    if Path(word).exists() or ":" in word or re.match(r"\d+-\d", word):
        return f'A subcommand comes first: lawful audit "{word}"'
    meaning = COMMANDS.get(word.lower())
    return f"Did you mean: lawful {meaning}?" if meaning else ""


ARCHITECTURE_WORD = re.compile(r"relu|leaky_relu\(.*\)|linear|bias")
COMMANDS = {
    "train": "flow", "fit": "flow", "info": "show", "inspect": "show", "describe": "show", "summary": "show",
    "report": "audit", "analyze": "audit", "analyse": "audit", "compress": "prune", "shrink": "prune",
    "equal": "same", "equivalent": "same", "cmp": "same", "viz": "explore", "plot": "explore", "draw": "explore",
    "conserved": "laws", "invariants": "laws", "symmetry": "symmetries", "export": "convert", "hash": "fingerprint",
}  # fmt: skip

# What others call it: guessed names that no spelling distance finds.
MEANINGS = {
    "output": "--out", "save": "--out", "write": "--out", "o": "--out", "file": "--out", "dest": "--out",
    "proof": "--certificate", "cert": "--certificate", "evidence": "--certificate",
    "bounds": "--box", "domain": "--box", "region": "--box", "range": "--box", "lower": "--box", "upper": "--box",
    "eps": "--tolerance", "tol": "--tolerance", "epsilon": "--tolerance", "atol": "--tolerance", "rtol": "--tolerance",
    "dataset": "--data", "samples": "--data", "x": "--data", "csv": "--data",
    "shape": "--input", "input-size": "--input", "size": "--input",
    "act": "--activation", "nonlinearity": "--activation", "factory": "--model", "class": "--model",
    "report": "--html", "page": "--html", "limit": "--seconds", "budget": "--seconds", "opt": "--optimizers",
    "optimizer": "--optimizers", "optimiser": "--optimizers", "lr": "--optimizers", "random-state": "--seed",
    "steps": "--until", "epochs": "--until", "duration": "--until", "t-max": "--until", "verify": "--certificate",
}  # fmt: skip
