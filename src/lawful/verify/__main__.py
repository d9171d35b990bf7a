"""`python -m lawful.verify CERTIFICATE [FILE...]`: the kernel alone, with python-flint (NumPy where boxes need it).

A file is `.safetensors`, or `.json` with a network as certificates write it. Whatever else `lawful verify` reads needs
the rest of the package, which is not trusted with the verdict either.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lawful.errors import CertificateError, LawfulError
from lawful.verify import speaks_of_files, verify
from lawful.verify.core.binding import load_certificate
from lawful.verify.core.dag import read_network
from lawful.verify.core.schema import parse, printable
from lawful.verify.core.tensors import SafeTensors


class GivenNetwork:
    """A network in a file: its digests."""

    def __init__(self, text: str) -> None:
        dag = read_network(parse(load_certificate(Path(text))), text)
        self.text, self.digests = text, (dag.digest(), dag.digest(weights=False))


def main(words: list[str]) -> int:
    """Check a certificate and say so; the exit code is 0 verified, 1 rejected, 2 neither."""
    texts = [word for word in words if word != "--json"]
    try:
        if not texts or any(word.startswith("-") for word in texts):
            raise LawfulError(
                "give a certificate, and the files that it should be about: CERTIFICATE [FILE...] [--json]"
            )
        content = load_certificate(Path(texts[0]))
        of_files = speaks_of_files(content) if isinstance(content, (str, bytes)) else False
        files = [_read(text, of_files) for text in texts[1:]]
        verified = verify(content, *files)
    except CertificateError as error:
        print(json.dumps({"valid": False, "reason": str(error)}) if "--json" in words else f"REJECTED: {error}")
        return 1
    except (LawfulError, OSError) as error:
        print(f"lawful.verify: {printable(str(error))}", file=sys.stderr)
        return 2
    if "--json" in words:
        print(json.dumps(verified.to_dict() | {"valid": True, "given": verified.given}, default=str))
    else:
        print(f"verified: {verified.statement}")
        for place, digest in enumerate(verified.networks):
            names = [name for name, at in zip(texts[1:], verified.given, strict=True) if at == place]
            print(f"  {digest}" + (f" is {names[0]}" if names else ""))
    return 0


def _read(text: str, of_files: bool) -> Any:
    if of_files:
        from lawful.verify.checkpoints.safetensors import read_checkpoint  # needs NumPy

        return read_checkpoint(Path(text))
    kind = Path(text).suffix.lower()
    if kind == ".safetensors":
        return SafeTensors(Path(text))
    if kind == ".json":
        return GivenNetwork(text)
    raise LawfulError(f"{text}: the kernel alone reads .safetensors and .json; `lawful verify` reads other files")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
