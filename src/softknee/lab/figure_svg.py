"""Makes the SVG of matplotlib small and plain: two decimals, styles named once, no groups and ids that do nothing.

What is written in glyphs stands beside them as a label, for readers of screens and of differences.
"""

import re
from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_OURS = ("line-", "mass-", "panel-")  # ids that say what a path is
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
_TOKEN = re.compile(rf"[A-Za-z]|{_NUMBER.pattern}")


def tidy(text: str, *, label: str, views: Mapping[str, tuple[float, ...]]) -> str:
    """The same picture in a third of the bytes.

    views: for each panel the stretch of x and of y that it shows, written beside it: `data-view="-3 3 -0.2 3.2"`. With
    it the numbers of a curve can be read back from the picture.
    """
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    builder = ElementTree.TreeBuilder(insert_comments=True)
    root = ElementTree.fromstring(text, parser=ElementTree.XMLParser(target=builder))
    root.set("role", "img")
    root.set("aria-label", label)
    used = {word for node in root.iter() for value in node.attrib.values() for word in re.findall(r"#([\w-]+)", value)}
    _prune(root, used)
    _name_styles(root)
    for node in root.iter():
        if view := views.get(node.get("id", "")):
            node.set("data-view", " ".join(f"{value:.6g}" for value in view))
    return ElementTree.tostring(root, encoding="unicode").replace("><", ">\n<") + "\n"


def _prune(parent: ElementTree.Element, used: set[str]) -> None:
    """Shorten everything below, and lift the children of groups that say nothing."""
    parent.text = (parent.text or "").strip() or None
    kept: list[ElementTree.Element] = []
    words = ""
    for child in list(parent):
        child.tail = None
        if child.tag is ElementTree.Comment:
            words = (child.text or "").strip()
            continue
        name = child.get("id", "")
        if name and name not in used and not name.startswith(_OURS):
            del child.attrib["id"]
        for key in ("d", "transform", "x", "y", "width", "height"):
            if key in child.attrib:
                child.set(key, _short_path(child.attrib[key]) if key == "d" else _short(child.attrib[key]))
        _prune(child, used)
        if child.tag == f"{{{_SVG}}}g" and not child.attrib:
            kept += list(child)
        elif child.tag != f"{{{_SVG}}}g" or len(child):
            if words:
                child.set("aria-label", words.replace("$", ""))
            kept.append(child)
        words = ""
    parent[:] = kept


def _name_styles(root: ElementTree.Element) -> None:
    """Styles that several elements share become classes."""
    counts = Counter(node.get("style") for node in root.iter() if node.get("style"))
    names = {style: f"s{place}" for place, (style, count) in enumerate(counts.most_common()) if style and count > 1}
    for node in root.iter():
        if (style := node.get("style")) in names:
            del node.attrib["style"]
            node.set("class", names[style])
    sheet = next(node for node in root.iter(f"{{{_SVG}}}style"))
    rules = [f".{name}{{{style.replace(': ', ':').replace('; ', ';')}}}" for style, name in names.items()]
    sheet.text = "\n".join([sheet.text or "", *rules])


def _short(value: str) -> str:
    """Places to two decimals; what scales glyphs keeps its digits."""
    parts = re.split(r"(scale\([^)]*\))", value)
    return "".join(
        part if part.startswith("scale") else _NUMBER.sub(lambda m: number(float(m[0])), part) for part in parts
    )


def _short_path(path: str) -> str:
    """Two decimals, and lines along an axis by their one number."""
    words: list[str] = []
    at: tuple[str, str] = ("", "")
    tokens = _TOKEN.findall(path)
    place, command = 0, ""
    while place < len(tokens):
        if tokens[place].isalpha():
            command, place = tokens[place], place + 1
        if command in "Zz":
            words.append("z")
            continue
        size = {"M": 2, "L": 2, "Q": 4, "C": 6}[command]
        numbers = [number(float(one)) for one in tokens[place : place + size]]
        place += size
        to = (numbers[-2], numbers[-1])
        if command == "L" and to == at and place < len(tokens):
            continue
        if command == "L" and to[0] == at[0]:
            words.append(f"V{to[1]}")
        elif command == "L" and to[1] == at[1]:
            words.append(f"H{to[0]}")
        else:
            words.append(command + " ".join(numbers).replace(" -", "-"))
        at = to
    return "".join(words)


def number(value: float) -> str:
    """Two decimals at most, and no minus sign on a zero."""
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short
