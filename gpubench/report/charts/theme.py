"""Colours and shapes of the charts, light and dark: a device or a dtype looks the same in every picture.

Colours of one chart differ by ΔE00 of 12 or more also under protanopia, deuteranopia and tritanopia, and stand out
3:1 against the page (WCAG 2.1, 1.4.11); tests/report/charts/test_theme.py computes both.
"""

from __future__ import annotations

import re
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..study import Row
    from ..words import Names

LIGHT, DARK = THEMES = ("light", "dark")
_DEVICES = (tuple(f"accelerator{i}" for i in range(22)), tuple(f"cpu{i}" for i in range(18)))
ACCELERATORS, CPUS = _DEVICES[0][:4], _DEVICES[1][:2]
"""The roles of devices with colours of their own; further devices have these colours in turn, with other shapes."""
DTYPE_ROLES = ("float32", "bfloat16", "float64", "tf32", "float16")

_LOOKS = (
    # roles, their shapes (a diamond is a crossover's), their colours on a light page and on a dark one
    (_DEVICES[0], "os^v<>hX*H8" * 2, "#0072b2 #c2410c #4b0082 #005533", "#56b4e9 #ff7a4d #6770f8 #f9f416"),
    (_DEVICES[1], "pPX*hH8<>" * 2, "#30363d #848d97", "#e6edf3 #7d8793"),
    (DTYPE_ROLES, "osp^v", "#0072b2 #c2410c #3b0f70 #701f30 #c0727e", "#56b4e9 #ff7a4d #7b6cf0 #f0e442 #f4b4c8"),
    (("page", "text", "muted", "grid", "shade"), "", "#ffffff #1f2328 #59636e #e3e6ea #f1f3f6",
     "#0d1117 #e6edf3 #9aa4b0 #262c36 #1a2029"),
)  # fmt: skip
_COLOURS = {
    theme: {
        role: code for roles, _, *codes in _LOOKS for role, code in zip(roles, cycle(codes[i].split()), strict=False)
    }
    for i, theme in enumerate(THEMES)
}
MARK_SHAPES = {role: shape for roles, shapes, *_ in _LOOKS for role, shape in zip(roles, shapes, strict=False)}


def role_of(names: Names, row: Row) -> str:
    """Return the role that sets the colour and shape of a row's device, another one for each device. CPUs are grey, and
    so is the first of the other libraries on them; further libraries have the colours after the GPUs'."""
    others = [source for source in names.sources if source not in names.accelerators]
    libraries = sorted(
        {source.library for source in others if source.library}, key=lambda name: (name != "numpy", name)
    )
    coloured = [*names.accelerators, *(source for source in others if source.library in libraries[1:])]
    grey = [source for source in others if source not in coloured]
    roles, sources = (_DEVICES[0], coloured) if row.source in coloured else (_DEVICES[1], grey)
    return roles[sources.index(row.source) % len(roles)]


def css_colours() -> str:
    """Return every colour of a picture as a variable of a style sheet, which the light colour names."""
    light, dark = _COLOURS.values()
    variables = dict.fromkeys(f"--{light[role][1:]}: light-dark({light[role]}, {dark[role]});" for role in light)
    return f":root {{ {' '.join(variables)} }}\n"


def colour(theme: str, role: str) -> str:
    """Return the colour of a role: a device, a dtype or a part of the page. An unknown role is muted."""
    return _COLOURS[theme].get(role, _COLOURS[theme]["muted"])


def recolour(svg: bytes, theme: str) -> bytes:
    """Return a light picture in another theme: every colour of the light one stands for one colour there."""
    others = {light.encode(): _COLOURS[theme][role].encode() for role, light in _COLOURS[LIGHT].items()}
    return re.sub(b"#[0-9a-f]{6}", lambda match: others.get(match[0], match[0]), svg)
