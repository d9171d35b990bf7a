"""What `lawful --help` says: subcommands by what a person wants, in whole sentences, and two examples of each."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from lawful.cli.words import add_short_forms, understood

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
