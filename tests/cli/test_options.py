"""Options are an interface: what stands in `options.txt` stays, and a new option is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from lawful.cli import _command

KNOWN = dict(line.split(": ", 1) for line in (Path(__file__).parent / "options.txt").read_text().splitlines())


def test_no_subcommand_is_lost() -> None:
    assert sorted(_command().commands) == sorted(KNOWN)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_no_option_is_lost(name: str) -> None:
    options = [each for each in _command().commands[name].params if each.param_type_name == "option"]
    spelled = ["/".join([max(each.opts, key=len), *each.secondary_opts]) for each in options]
    assert " ".join(sorted(spelled)) == KNOWN[name]
