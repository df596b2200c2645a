"""A picture inside a web page: its panels alone, in the colours of the page, and the value of each mark on hovering.

The page's content policy allows no ``style`` attribute, so looks are attributes of their own. Ids are unique on the
page, and coordinates have the digits that can be seen.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import numpy as np
from matplotlib.markers import MarkerStyle
from matplotlib.transforms import Affine2D

from .page import AROUND, Key, shape_of
from .theme import LIGHT, colour

_LINK = "{http://www.w3.org/1999/xlink}href"
_LEFT_OUT = ("metadata", "title", "style")
_INHERITED = {"id", "style", "font-family"} | {
    f"stroke-{of}" for of in ("linecap", "linejoin", "miterlimit", "dashoffset")
}
"""Attributes that the page's style sheet sets, or that nothing needs."""
_REFERENCE = re.compile(r"#([mp][0-9a-f]{10})\b")


def panels_of(svg: bytes, box: tuple[float, ...], title: str, titles: Mapping[str, str], prefix: str) -> str:
    """Return the ``svg`` element of the panels in the ``box``, whose label is the ``title``; ``titles`` has the texts
    of marks by the ids of their groups. All ids begin with the ``prefix``."""
    root = ET.fromstring(svg)
    used = {*_REFERENCE.findall(svg.decode())}
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
        for child in list(element):
            if child.tag.endswith(_LEFT_OUT) or child.get("id", "").startswith(AROUND):
                element.remove(child)
        gid = element.get("id", "")
        element.attrib = _attributes(element.attrib, prefix, 2 if gid in used else 1)
        if element.tag == "use":  # the shape has its stroke
            element.attrib = {name: value for name, value in element.items() if not name.startswith("stroke")}
        if gid in used:
            element.set("id", prefix + gid)
        if role := re.fullmatch(r"(\w+)-\d+", gid):
            element.set("class", role[1])
        element.text, element.tail = element.text if element.tag == "text" else None, None
        if gid in titles:
            mark = ET.Element("title")
            mark.text = titles[gid]
            element.insert(0, mark)
    root.attrib = {"viewBox": " ".join(f"{each:.0f}" for each in box), "role": "img", "aria-label": title}
    _flatten(root)
    return ET.tostring(root, encoding="unicode")


def _attributes(given: Mapping[str, str], prefix: str, digits: int) -> dict[str, str]:
    """The attributes without styles, in shorter numbers and with the colours of the page's variables."""
    style = (part.partition(":") for part in given.get("style", "").split(";"))
    looks = {name.strip(): value.strip() for name, _, value in style if value}
    made = {}
    for name, value in ({**given, **looks}).items():
        if name not in _INHERITED and not value.startswith("rotate(-0 "):
            value = re.sub(r"#([0-9a-f]{6})$", r"var(--\1)", value)
            value = _REFERENCE.sub(rf"#{prefix}\1", value)
            value = re.sub(rf"(\.\d{{{digits}}})\d+", r"\1", re.sub(r"\s+", " ", value)).strip()
            made["href" if name == _LINK else name] = value
    return made


def _flatten(element: ET.Element) -> None:
    """Replace groups without attributes by their content, and leave out what has the colour of the page alone."""
    for child in element:
        _flatten(child)
    paper = f"var(--{colour(LIGHT, 'page')[1:]})"
    content: list[ET.Element] = []
    for child in element:
        if child.tag == "g" and not child.attrib:
            content += child
        elif child.attrib.keys() != {"d", "fill"} or child.get("fill") != paper:
            content.append(child)
    element[:] = content


def swatch(key: Key) -> str:
    """Return an ``svg`` element with the look of a key in a legend."""
    ink = f"var(--{colour(LIGHT, key.role)[1:]})"
    style = MarkerStyle("|" if key.look == "tick" else shape_of(key.role))
    shape = style.get_path().transformed(style.get_transform() + Affine2D().scale(11, -11))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in np.asarray(shape.to_polygons(closed_only=False)[0]))
    dash = ' stroke-dasharray="4 2"' * (key.look == "dashed")
    line = f'<path d="M-14 0H14" stroke="{ink}" stroke-width="2"{dash}/>' * (key.look in ("line", "dashed"))
    face = "var(--paper)" if key.look in ("hollow", "dashed") else ink
    width = 3.0 if key.look == "tick" else 1.5
    mark = f'<polygon points="{points}" fill="{face}" stroke="{ink}" stroke-width="{width}"/>'
    bar = f'<rect x="-12" y="-5" width="24" height="10" fill="{ink}"/>'
    return f'<svg viewBox="-15 -8 30 16" aria-hidden="true">{line}{bar if key.look == "bar" else mark}</svg>'
