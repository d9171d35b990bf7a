"""References from the API's types to the library's own names, found without walking through all names for each."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sphinx.domains.python import PythonDomain


class OwnNames(PythonDomain):
    """Most types (`int`, `Tensor`) are other libraries': no name of ours ends like them, so none can be meant."""

    def find_obj(self, env: Any, modname: Any, classname: Any, name: str, type: Any, searchmode: int = 0) -> Any:
        """As it was, where the last part of a name is the last part of one of ours."""
        last = name.removesuffix("()").rpartition(".")[2]
        known = last in self.last_parts(len(self.objects))
        return super().find_obj(env, modname, classname, name, type, searchmode) if known else []

    @lru_cache(maxsize=1)  # noqa: B019
    def last_parts(self, names: int) -> set[str]:
        """The last parts of all names, while there are this many."""
        return {name.rpartition(".")[2] for name in self.objects}


def setup(app: Any) -> dict[str, bool]:
    """Register the domain."""
    app.add_domain(OwnNames, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
