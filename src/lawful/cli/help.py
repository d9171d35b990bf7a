"""What `lawful --help` says: subcommands by what a person wants, in whole sentences, and two examples of each."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

ALL = "lawful.cli.help.all"  # in the context: every subcommand is listed

ABOUT = """Ask a neural network what it is, and get an answer with a proof.

A NETWORK is a file (.safetensors, .pt, .onnx, .json, .npz), a "module:factory", or an architecture such as
"3-4-2 relu bias"."""

END = """With -v any subcommand also says how it read each file. Exit codes: 0 yes or done, 1 a definite no, 2 bad
input, 3 undecided, 4 a defect of lawful, 130 interrupted, 141 the reader of a pipe has left. With --json an error is
one object with error, hint and exit."""

FIRST = "Start here"
GROUPS: dict[str, tuple[str, ...]] = {
    FIRST: ("audit", "same", "prune", "laws", "symmetries", "check", "explore", "verify"),
    "Compare two networks": ("distance", "diff", "align", "merge", "path"),
    "Look inside one": ("show", "components", "singular", "identifiable", "fiber", "regions", "bottleneck", "truncate"),
    "Change it and keep its function": ("convert", "rebalance", "canonical"),
    "Watch training": ("flow", "compare", "drift", "separate", "truncation-flow", "leaky"),
    "Search among many": ("sweep", "vnncomp", "fingerprint", "find"),
    "See for yourself": ("demo", "reproduce"),
}

# The tests run these in a folder with small files of these names.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "audit": ("lawful audit model.safetensors --html audit.html", "lawful audit model.onnx --data data.csv --json"),
    "explore": (
        'lawful explore "2-4-4-1 relu bias" --html page.html',
        "lawful explore model.safetensors data.csv --html page.html",
    ),
    "show": ('lawful show "3-4-2 relu bias"', "lawful show model.safetensors --svg model.svg"),
    "laws": ('lawful laws "6-5-6 linear"', "lawful laws model.safetensors --near --certificate laws.json"),
    "symmetries": ('lawful symmetries "3-4-2 relu bias"', "lawful symmetries model.safetensors --json"),
    "components": (
        "lawful components model.safetensors",
        "lawful components model.safetensors --certificate locks.json",
    ),
    "path": (
        "lawful path model.safetensors later.safetensors",
        "lawful path model.safetensors later.safetensors --out path.npz",
    ),
    "singular": ("lawful singular model.safetensors", 'lawful singular "2-3-1 relu" --exist'),
    "same": (
        "lawful same model.safetensors later.safetensors",
        "lawful same model.safetensors model.onnx --box=-1,1 --certificate same.json",
    ),
    "align": (
        "lawful align model.safetensors later.safetensors",
        "lawful align model.safetensors later.safetensors --out aligned.safetensors --json",
    ),
    "merge": (
        "lawful merge model.safetensors later.safetensors --out mean.safetensors",
        "lawful merge model.safetensors later.safetensors --weight 0.25 --data data.csv",
    ),
    "find": (
        "lawful find model.safetensors --index checkpoints.sqlite",
        "lawful find model.safetensors --index checkpoints.sqlite --top 3 --json",
    ),
    "distance": (
        "lawful distance model.safetensors later.safetensors --seconds 2",
        "lawful distance model.safetensors later.safetensors --box=-1,1 --within 100 --json",
    ),
    "vnncomp": (
        "lawful vnncomp instances.csv --seconds 5",
        "lawful vnncomp instances.csv --out results.csv --certificates proofs --json",
    ),
    "check": (
        "lawful check model.safetensors specification.vnnlib",
        "lawful check model.safetensors --monotone=+0,-1 --box=-1,1 --seconds 5 --json",
    ),
    "diff": (
        "lawful diff model.safetensors later.safetensors",
        "lawful diff model.safetensors later.safetensors --data data.csv --loss mse",
    ),
    "identifiable": ("lawful identifiable model.safetensors", 'lawful identifiable "4-3-2-1 relu bias" --json'),
    "fiber": (
        'lawful fiber "3-2-1 relu bias"',
        "lawful fiber model.safetensors --sample 2 --out twins",
    ),
    "regions": (
        "lawful regions model.safetensors --box=-1,1",
        "lawful regions model.safetensors --box=-1,1 --seconds 10",
    ),
    "bottleneck": (
        "lawful bottleneck model.safetensors --data data.csv",
        "lawful bottleneck model.onnx --data data.csv --json",
    ),
    "truncate": (
        "lawful truncate model.safetensors --data labels.csv",
        'lawful truncate "4-3-3 relu" --data iris',
    ),
    "separate": (
        "lawful separate labels.csv --network parted.safetensors",
        "lawful separate --clusters 3,50,0.1",
    ),
    "convert": (
        "lawful convert model.safetensors model.json",
        'lawful convert "3-4-2 relu bias" random.onnx --seed 1',
    ),
    "rebalance": (
        "lawful rebalance model.safetensors --out balanced.safetensors",
        "lawful rebalance model.safetensors --objective range --out even.safetensors",
    ),
    "prune": (
        "lawful prune model.safetensors -o small.safetensors",
        "lawful prune model.safetensors --tolerance 0.01 --box=-1,1 --certificate pruned.json",
    ),
    "canonical": (
        "lawful canonical model.safetensors --out standard.safetensors",
        "lawful canonical later.safetensors --json",
    ),
    "flow": (
        "lawful flow model.safetensors --data data.csv --until 0.5 --out run",
        'lawful flow "3-4-1 relu" --dynamics heavy-ball --friction 2 --until 3',
    ),
    "compare": (
        "lawful compare model.safetensors flow,sgd:0.1,adam:0.001 --data data.csv",
        'lawful compare "3-4-1 relu" --until 0.2 --plot drift.svg',
    ),
    "drift": ("lawful drift run", "lawful drift run --html run.html --tolerance 1e-6"),
    "truncation-flow": (
        "lawful truncation-flow --clusters 2,20,0.1 --until 2",
        "lawful truncation-flow --data labels.csv --fixed",
    ),
    "leaky": (
        "lawful leaky --teacher 4-2-4 --effective-depth 2 --depth 8 --width 6 --samples 20 --out leaky",
        "lawful leaky --teacher 20-5-20 --effective-depth 3,5,7,11 --out geodesics",
    ),
    "verify": ("lawful verify laws.json", "lawful verify same.json --json"),
    "reproduce": ("lawful reproduce --list", "lawful reproduce p0-rescaling --out figures"),
    "demo": ("lawful demo", "lawful demo -o demo --seed 1"),
    "sweep": ("lawful sweep plan.toml --out results", "lawful sweep status results"),
    "fingerprint": (
        "lawful fingerprint model.safetensors model.onnx later.safetensors",
        "lawful fingerprint model.safetensors model.json --json",
    ),
}


# The first screen says what is gained; a subcommand's own help says what it does.
SHORT_SENTENCES = {
    "audit": "Everything about a network on one page, most useful first.",
    "same": "Are two networks the same function? A proof, or an input that tells them apart.",
    "prune": "Remove neurons, heads and channels that change nothing, with a proof.",
    "laws": "What training can never change: count, find and prove its conservation laws.",
    "symmetries": "Changes of the weights that leave the function alone, in any PyTorch module.",
    "check": "Does a property hold for every input? VNN-LIB files, monotonicity.",
    "explore": "A page on which you drag weights and watch the function.",
    "verify": "Check a certificate again, with code that shares nothing with its maker.",
}


def epilog(verb: str) -> str | None:
    """The lines that end a subcommand's help."""
    examples = EXAMPLES.get(verb)
    return None if examples is None else "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)


def name_values(command: Any) -> None:
    """Usage as manuals write it: NETWORK instead of {NETWORK} <str>, --out PATH instead of --out <path>."""
    for each in command.params:
        kind = getattr(each, "type_descriptor", None)  # before Typer had them, help was written so
        if kind is None or getattr(each, "is_flag", False):
            continue
        if each.param_type_name == "option":
            word = "TEXT" if "str" in each.bare_type() else "N" if "int" in each.bare_type() else "NUMBER"
            each.metavar = each.metavar or ("PATH" if kind.is_path else word)
        else:
            shown = each.display_name_raw if each.metavar else each.display_name_raw.upper()
            usage = shown if each.required or shown.startswith("[") else f"[{shown}]"
            if each.nargs != 1 and not usage.endswith((".", "]")):
                usage += "..."
            each.metavar = shown
            each.get_usage_pieces = lambda context, usage=usage: [usage]
            each.display_type_rich = lambda ctx: ""


class Verbs(TyperGroup):
    """The subcommands: eight on the first screen, all of them, grouped, with `lawful help all`."""

    def get_command(self, context: Any, name: str) -> Any:
        """A subcommand, with its short forms and its examples."""
        found = super().get_command(context, name)
        if found is not None and found.epilog is None:
            found.epilog = epilog(name)
            add_short_forms(found)
            name_values(found)
        return found

    def resolve_command(self, context: Any, args: list[str]) -> Any:
        """The subcommand, and the words after it with their names of today."""
        name, command, rest = super().resolve_command(context, args)
        return name, command, rest if command is None else understood(command, rest)

    def format_commands(self, context: Any, formatter: Any) -> None:
        """One section per group; a subcommand that no group names comes last."""
        every = bool(context.meta.get(ALL))
        named = {name for names in GROUPS.values() for name in names}
        groups = {**GROUPS, "More": tuple(name for name in self.list_commands(context) if name not in named)}
        for title, names in groups.items() if every else [(FIRST, GROUPS[FIRST])]:
            commands = [(name, self.get_command(context, name)) for name in names]
            rows = [(name, SHORT_SENTENCES.get(name) or sentence(each.help)) for name, each in commands if each]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if not every:
            rest = [name for title, names in GROUPS.items() if title != FIRST for name in names]
            formatter.write_paragraph()
            formatter.write_text(f"{len(rest)} more, by what you want (lawful help all): {', '.join(rest)}.")
            formatter.write_paragraph()
            formatter.write_text("Options and examples of one: lawful help laws.")

    def format_epilog(self, context: Any, formatter: Any) -> None:
        """What the exit codes mean, after everything else."""
        formatter.write_paragraph()
        formatter.write_text(END)


def arguments_of_help(words: list[str]) -> list[str]:
    """`lawful help`, `lawful help all` and `lawful help laws` as the options that they stand for.

    >>> arguments_of_help(["help", "laws"]), arguments_of_help(["help", "all"]), arguments_of_help(["laws", "help"])
    (['laws', '--help'], ['--help-all'], ['laws', 'help'])
    """
    if words == ["version"]:
        return ["--version"]
    if words[:1] != ["help"]:
        return words
    return ["--help"] if len(words) == 1 else ["--help-all"] if words[1] == "all" else [*words[1:], "--help"]


def sentence(text: str | None) -> str:
    """The first paragraph of a subcommand's help, on one line.

    >>> sentence("Describe a network.\\n\\nMore about it.")
    'Describe a network.'
    """
    return " ".join((text or "").split("\n\n")[0].split())


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
        new = "--html" if name == "--out" and "--html" in known else OLD.get(name)  # what writes only a page
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
        instead = _instead_of(unknown[1])
        return "" if instead and instead.split()[-1].rstrip("?") in message.split("'")[3::2] else instead
    if "Missing argument 'NETWORK'" in message:
        return f'A file, module:factory or an architecture: lawful {command.name} "3-4-2 relu bias"'
    if "Missing option '--index'" in message:
        return "Make one of a folder of checkpoints first: lawful fingerprint FOLDER --index checkpoints.sqlite"
    if "Missing " in message and command.name in EXAMPLES:
        return f"For example: {EXAMPLES[command.name][0]}"
    surplus = re.search(r"unexpected extra argument(?:s|\(s\))? \((.+)\)", message)
    if surplus is not None:
        return _instead_of_surplus(surplus[1], command.name, known)
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


def _instead_of_surplus(words: str, name: str, known: dict[str, Any]) -> str:
    """What the first word that no argument takes was meant for."""
    word = words.split()[0]
    if ARCHITECTURE_WORD.fullmatch(word):
        return f'An architecture is one word, in quotes: lawful {name} "3-4-2 {words}"'
    if name == "compare" and Path(word).is_file():
        return "It compares optimizers on one network; two networks: lawful same A B, or lawful diff A B"
    if "--html" in known and word.lower().endswith((".html", ".htm")):
        return f"To write a page there: --html {word}"
    if "--out" not in known and Path(word).is_file():
        return "It takes fewer files; for many at once: lawful fingerprint FILES, or lawful sweep"
    if re.fullmatch(r"\d+", word):
        return f'An architecture is one word: lawful {name} "3-4-2 relu bias"'
    if "--tolerance" in known and re.fullmatch(r"0?\.\d+|\d+%", word):
        return f"How far outputs may move: --tolerance {word} --box=-1,1"
    if "--out" in known and "." in word:
        return f"To write the result there: -o {word}"
    if "--box" in known and re.fullmatch(r"[-+.\deE]+[,:][-+.\deE,:]+", word):
        return f"For a box of inputs: --box={word}"
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
    "quantize": "convert", "quantise": "convert", "test": "check", "prove": "check", "list": "help all",
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
    "ratio": "--target", "sparsity": "--target", "amount": "--target", "V": "--version",
    "steps": "--until", "epochs": "--until", "duration": "--until", "t-max": "--until", "verify": "--certificate",
}  # fmt: skip
