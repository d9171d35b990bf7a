"""The core installs with few packages; what needs another one says which extra brings it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lawful.errors import LawfulError

EXTRAS = {
    "torch": ("PyTorch", "torch"),
    "sympy": ("SymPy", "torch"),
    "onnx": ("ONNX", "onnx"),
    "sklearn": ("scikit-learn", "data"),
    "matplotlib": ("matplotlib", "plot"),
    "pandas": ("pandas", "data"),
    "dask": ("Dask", "sweep"),
    "distributed": ("Dask", "sweep"),
    "pyarrow": ("Apache Arrow", "sweep"),
    "lightning": ("Lightning", "lightning"),
}


CLAIMS = "the claims of the papers come with the repository, not with the package: clone it and run `make demo` there"


class MissingExtra(LawfulError, ModuleNotFoundError):
    """A package is not installed that this needs; the message names the extra."""


def missing(module: str) -> MissingExtra | None:
    """The error for a module that could not be imported, if an extra brings it.

    >>> print(missing("torch.nn"))
    this needs PyTorch, which is not installed: pip install 'lawful[torch]'
    """
    package = module.partition(".")[0]
    if package == "reproduction":
        return MissingExtra(CLAIMS, name=module)
    if package not in EXTRAS:
        return None
    name, extra = EXTRAS[package]
    return MissingExtra(f"this needs {name}, which is not installed: pip install 'lawful[{extra}]'", name=module)


def needed(module: str) -> Any:
    """Import a module that an extra brings."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error.name or "") or error from None
