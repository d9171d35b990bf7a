"""How ONNX describes a kernel that moves over space."""

from __future__ import annotations

from typing import Any

from lawful.network.windows import Window


def window_of(options: dict[str, Any], kernel: tuple[int, ...], space: tuple[int, ...]) -> Window:
    """Strides, dilations and padding of a convolution or pool; `auto_pad` is worked out for the given space."""
    axes = len(kernel)
    stride = tuple(options.get("strides", (1,) * axes))
    dilation = tuple(options.get("dilations", (1,) * axes))
    pads = tuple(options.get("pads", (0,) * (2 * axes)))
    auto = options.get("auto_pad", b"NOTSET").decode()
    if auto.startswith("SAME"):
        total = [
            max((-(-size // step) - 1) * step + wide * (side - 1) + 1 - size, 0)
            for size, step, wide, side in zip(space, stride, dilation, kernel, strict=True)
        ]
        low = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total)
        pads = (*low, *(t - part for t, part in zip(total, low, strict=True)))
    elif auto == "VALID":
        pads = (0,) * (2 * axes)
    return Window(kernel, stride, pads[:axes], pads[axes:], dilation, bool(options.get("ceil_mode", 0)))
