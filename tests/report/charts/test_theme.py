"""The colours: told apart by everybody, and standing out from the page."""

import itertools
import math
import re

import numpy as np
import pytest

from gpubench.report.charts.theme import (
    ACCELERATORS,
    CPUS,
    DARK,
    DTYPE_ROLES,
    LIGHT,
    MARK_SHAPES,
    THEMES,
    colour,
    recolour,
)

TOGETHER = {"devices": (*ACCELERATORS, *CPUS), "dtypes": DTYPE_ROLES}
"""Roles that one chart may show."""
LEAST = 10.5
# Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency (2009), of
# severity 1, on linear RGB.
SIGHTS = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(code):
    parts = np.array([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* of linear RGB, D65."""
    xyz = np.array(TO_XYZ) @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one, two):
    """CIE94, of graphic arts: in hue and chroma more differs unseen, the more colourful it is."""
    light, a, b = (x - y for x, y in zip(one, two, strict=True))
    chroma, other = (math.hypot(*each[1:]) for each in (one, two))
    hue = max(0.0, a**2 + b**2 - (chroma - other) ** 2)
    return math.sqrt(light**2 + ((chroma - other) / (1 + 0.045 * chroma)) ** 2 + hue / (1 + 0.015 * chroma) ** 2)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("roles", TOGETHER)
def test_everybody_tells_the_colours_of_a_chart_apart(roles, theme, sight):
    seen = {role: lab(np.array(SIGHTS[sight]) @ linear(colour(theme, role))) for role in TOGETHER[roles]}
    apart = {pair: difference(seen[pair[0]], seen[pair[1]]) for pair in itertools.combinations(seen, 2)}
    assert {pair: round(far, 1) for pair, far in apart.items() if far < LEAST} == {}


def contrast(one, two):
    """WCAG 2.1, relative luminance and contrast ratio."""
    low, high = sorted(float(np.dot([0.2126, 0.7152, 0.0722], linear(code))) for code in (one, two))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_colours_stand_out(theme):
    paper, shade = colour(theme, "page"), colour(theme, "shade")
    for role in {role for roles in TOGETHER.values() for role in roles}:
        assert contrast(colour(theme, role), paper) >= 3, role
        assert contrast(colour(theme, role), shade) >= 3, role
    for role in ("text", "muted"):
        assert min(contrast(colour(theme, role), other) for other in (paper, shade)) >= 4.5


def test_shape_stands_beside_colour():
    for roles in ((*ACCELERATORS, *CPUS), DTYPE_ROLES):
        assert len({MARK_SHAPES[role] for role in roles}) == len(roles)
    assert not {MARK_SHAPES[role] for role in (*ACCELERATORS, *CPUS, *DTYPE_ROLES)} & {"D", "d"}  # a crossover's


def test_a_light_picture_in_the_other_theme_has_no_light_colour_left():
    roles = [*(role for roles in TOGETHER.values() for role in roles), "page", "text", "muted", "grid", "shade"]
    light = " ".join(colour(LIGHT, role) for role in roles).encode()
    dark = recolour(light, DARK)
    assert dark.decode().split() == [colour(DARK, role) for role in roles]
    assert recolour(light, LIGHT) == light
    assert re.fullmatch(rb"(#[0-9a-f]{6} ?)+", dark)
