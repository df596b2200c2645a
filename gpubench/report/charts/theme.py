"""Colours and shapes of the charts, light and dark: a device or a dtype looks the same in every picture.

Colours of one chart differ by ΔE00 of 12 or more also under protanopia, deuteranopia and tritanopia, and stand out
3:1 against the page (WCAG 2.1, 1.4.11); tests/report/charts/test_theme.py computes both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..study import Row
    from ..words import Names

LIGHT, DARK = THEMES = ("light", "dark")

ACCELERATORS = ("accelerator0", "accelerator1", "accelerator2", "accelerator3")
CPUS = ("cpu0", "cpu1")
DTYPE_ROLES = ("float32", "bfloat16", "float64", "tf32", "float16")
_PARTS = ("page", "text", "muted", "grid", "shade")

_LOOKS = (
    # roles, their colours on a light page and on a dark one, their shapes
    (ACCELERATORS, "#0072b2 #c2410c #4b0082 #005533", "#56b4e9 #ff7a4d #6770f8 #f9f416", "os^v"),
    (CPUS, "#30363d #848d97", "#e6edf3 #7d8793", "pP"),
    (DTYPE_ROLES, "#0072b2 #c2410c #3b0f70 #701f30 #c0727e", "#56b4e9 #ff7a4d #7b6cf0 #f0e442 #f4b4c8", "osp^v"),
    (_PARTS, "#ffffff #1f2328 #59636e #e3e6ea #f1f3f6", "#0d1117 #e6edf3 #9aa4b0 #262c36 #1a2029", ""),
)
_COLOURS = {
    theme: {role: code for roles, *codes, _ in _LOOKS for role, code in zip(roles, codes[i].split(), strict=True)}
    for i, theme in enumerate(THEMES)
}
MARK_SHAPES = {role: shape for roles, _, _, shapes in _LOOKS for role, shape in zip(roles, shapes, strict=False)}
_MORE_SHAPES = {ACCELERATORS: "<>hX*H8" + "os^v<>hX*H8", CPUS: "X*hH8<>" + "pPX*hH8<>"}
"""Further devices have the colours of the first ones in turn, with other shapes; a diamond is a crossover's."""
for _roles, _shapes in _MORE_SHAPES.items():
    for _at, _shape in enumerate(_shapes, len(_roles)):
        _role = f"{_roles[0][:-1]}{_at}"
        MARK_SHAPES[_role] = _shape
        for _colours in _COLOURS.values():
            _colours[_role] = _colours[_roles[_at % len(_roles)]]


def role_of(names: Names, row: Row) -> str:
    """Return the role that sets the colour and shape of a row's device, another one for each device. CPUs are grey, and
    so is the first of the other libraries on them; further libraries have the colours after those of GPUs."""
    source = row.source
    if row.on_accelerator:
        return _role_at(ACCELERATORS, names.accelerators.index(source))
    cpus = [each for each in names.sources if each not in names.accelerators]
    libraries = sorted({each.library for each in cpus if each.library}, key=lambda name: (name != "numpy", name))
    if source.library in libraries[1:]:
        others = [each for each in cpus if each.library in libraries[1:]]
        return _role_at(ACCELERATORS, len(names.accelerators) + others.index(source))
    grey = [each for each in cpus if each.library in ("", *libraries[:1])]
    return _role_at(CPUS, grey.index(source))


def _role_at(roles: tuple[str, ...], place: int) -> str:
    return f"{roles[0][:-1]}{place % (len(roles) + len(_MORE_SHAPES[roles]))}"


def css_colours() -> str:
    """Return the colours of all devices as rules of a style sheet, and every colour of a picture as a variable: the
    light one names it."""
    roles = [role for role in _COLOURS[LIGHT] if role.startswith(("accelerator", "cpu"))]
    both = {role: (colour(LIGHT, role), colour(DARK, role)) for role in _COLOURS[LIGHT]}
    variables = dict.fromkeys(f"--{light[1:]}: light-dark({light}, {dark});" for light, dark in both.values())
    rules = "".join(f".{role} {{ --ink: var(--{both[role][0][1:]}); }}\n" for role in roles)
    return f":root {{ {' '.join(variables)} }}\n{rules}"


def colour(theme: str, role: str) -> str:
    """Return the colour of a role: a device, a dtype or a part of the page. A role that the theme doesn't have is
    muted."""
    return _COLOURS[theme].get(role, _COLOURS[theme]["muted"])


def recolour(svg: bytes, theme: str) -> bytes:
    """A light picture in another theme: every colour of the light one stands for one colour there."""
    if theme == LIGHT:
        return svg
    others = {light.encode(): _COLOURS[theme][role].encode() for role, light in _COLOURS[LIGHT].items()}
    return re.sub(b"#[0-9a-f]{6}", lambda match: others.get(match[0], match[0]), svg)
