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

_LEFT_OUT = ("metadata", "title", "style")
_SET_ELSEWHERE = re.compile(r"id|style|font-family|stroke-(linecap|linejoin|miterlimit|dashoffset)")
"""Attributes that the page's style sheet sets, or that nothing needs."""
_REFERENCE = re.compile(r"#([mp][0-9a-f]{10})\b")


def panels_of(svg: bytes, box: tuple[float, ...], title: str, titles: Mapping[str, str], prefix: str) -> str:
    """Return the ``svg`` element of the panels in the ``box``, whose label is the ``title``; ``titles`` has the texts
    of marks by the ids of their groups. All ids begin with the ``prefix``."""
    root = ET.fromstring(svg)
    used = {*_REFERENCE.findall(svg.decode())}
    for element in list(root.iter()):
        element.tag, gid = element.tag.rpartition("}")[2], element.get("id", "")
        for child in list(element):
            if child.tag.endswith(_LEFT_OUT) or child.get("id", "").startswith(AROUND):
                element.remove(child)
        element.attrib = _attributes(element, prefix, 2 if gid in used else 1)
        if gid in used:
            element.set("id", prefix + gid)
        if role := re.fullmatch(r"(\w+)-\d+", gid):
            element.set("class", role[1])
        element.text, element.tail = (element.text if element.tag == "text" else None, None)
        if gid in titles:
            element.insert(0, mark := ET.Element("title"))
            mark.text = titles[gid]
    root.attrib = {"viewBox": " ".join(f"{side:.0f}" for side in box), "role": "img", "aria-label": title}
    _flatten(root)
    return ET.tostring(root, encoding="unicode")


def _attributes(element: ET.Element, prefix: str, digits: int) -> dict[str, str]:
    """The attributes without styles, in shorter numbers and with the colours of the page's variables."""
    looks = re.findall(r"([\w-]+): *([^;]+)", element.get("style", ""))
    made = {}
    for name, value in (*element.items(), *looks):
        name = name.rpartition("}")[2]
        of_shape = element.tag == "use" and name.startswith("stroke")  # the shape has its stroke
        if not (_SET_ELSEWHERE.fullmatch(name) or of_shape or value.startswith("rotate(-0 ")):
            value = re.sub(r"#([0-9a-f]{6})$", r"var(--\1)", value)
            value = _REFERENCE.sub(rf"#{prefix}\1", value)
            made[name] = re.sub(rf"(\.\d{{{digits}}})\d+", r"\1", " ".join(value.split()))
    return made


def _flatten(element: ET.Element) -> None:
    """Replace groups without attributes by their content, and leave out what has the colour of the page alone."""
    paper, content = {"fill": f"var(--{colour(LIGHT, 'page')[1:]})"}, list[ET.Element]()
    for child in element:
        _flatten(child)
        if child.tag == "g" and not child.attrib:
            content += child
        elif child.attrib != paper | {"d": child.get("d")}:
            content.append(child)
    element[:] = content


def swatch(key: Key) -> str:
    """Return an ``svg`` element with the look of a key in a legend."""
    ink = f"var(--{colour(LIGHT, key.role)[1:]})"
    style = MarkerStyle("|" if key.look == "tick" else shape_of(key.role))
    shape = style.get_path().transformed(style.get_transform() + Affine2D().scale(11, -11))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in np.asarray(shape.to_polygons(closed_only=False)[0]))
    face, width = ("var(--paper)" if key.look == "dashed" else ink, 3.0 if key.look == "tick" else 1.5)
    mark = f'<polygon points="{points}" fill="{face}" stroke="{ink}" stroke-width="{width}"/>'
    if key.look in ("line", "dashed"):
        dash = ' stroke-dasharray="4 2"' * (key.look == "dashed")
        mark = f'<path d="M-14 0H14" stroke="{ink}" stroke-width="2"{dash}/>{mark}'
    elif key.look == "bar":
        mark = f'<rect x="-12" y="-5" width="24" height="10" fill="{ink}"/>'
    return f'<svg viewBox="-15 -8 30 16" aria-hidden="true">{mark}</svg>'
