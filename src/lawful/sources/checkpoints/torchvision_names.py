"""torchvision built for another PyTorch: it cannot be imported, nor can whatever imports it."""

from __future__ import annotations

from typing import Any

MISSING = "torchvision::"  # how PyTorch names an operator that is not there
_OPERATORS: list[Any] = []  # names live as long as the process


def let_torchvision_load() -> bool:
    """Give torchvision the names of its operators, if it does not load without; whether that was so.

    transformers and timm import torchvision for pictures. The operators are for boxes of detectors: a call of one fails
    as before, but models that need none can be made.
    """
    if _OPERATORS:
        return False
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return False
    except RuntimeError as error:
        if MISSING not in str(error):
            return False
        import torch

        for name in ("nms", "qnms"):
            library: Any = torch.library.Library
            _OPERATORS.append(library("torchvision", "FRAGMENT"))
            _OPERATORS[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return True
    return False


def is_about_torchvision(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is that an operator of torchvision is not there."""
    seen: BaseException | None = error
    while seen is not None:
        if MISSING in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
