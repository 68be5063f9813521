"""Checks the built site: every link and anchor leads somewhere, and no page makes a browser fetch from outside."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements whose address a browser fetches by itself, and the attribute that holds it.
_FETCHED = dict.fromkeys(("script", "img", "iframe", "embed", "source", "video", "audio", "input"), "src")
_FETCHED |= {"object": "data", "image": "href", "use": "href"}
# Of a <link>: those that only name a place.
_NAMED_ONLY = {"canonical", "next", "prev", "author", "license", "search", "index", "help", "me"}
_CSS = re.compile(r"url\(\s*['\"]?(?P<url>[^'\")]+)|@import\s+['\"](?P<import>[^'\"]+)")


@dataclass
class Page(HTMLParser):
    """What one page names and what it fetches."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    _in_style: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        self._in_style = tag == "style"
        if attributes.get("style"):
            self.styles.append(attributes["style"])
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        elif tag == "link" and "href" in attributes:
            named = set(attributes.get("rel", "").split()) <= _NAMED_ONLY
            (self.links if named else self.fetches).append(attributes["href"])
        elif tag in _FETCHED and attributes.get(_FETCHED[tag]):
            self.fetches.append(attributes[_FETCHED[tag]])
        if attributes.get("srcset"):
            self.fetches += [part.split()[0] for part in attributes["srcset"].split(",")]

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.styles.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False


@functools.cache
def read(path: Path) -> Page:
    """One page, read."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> list[str]:
    """A sentence for every dead link, dead anchor, missing file and fetch from outside."""
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    complaints = []
    for path, page in pages.items():
        here = path.relative_to(site)
        for address in page.links:
            if why := _dead(address, path, pages, site):
                complaints.append(f"{here}: the link {address!r} {why}.")
        for address in (*page.fetches, *(address for text in page.styles for address in _addresses(text))):
            if why := _outside(address) or _dead(address, path, pages, site):
                complaints.append(f"{here}: what is fetched from {address!r} {why}.")
    for path in sorted(site.rglob("*.css")):
        for address in _addresses(path.read_text(encoding="utf-8")):
            if why := _outside(address) or _dead(address, path, pages, site):
                complaints.append(f"{path.relative_to(site)}: what is fetched from {address!r} {why}.")
    return complaints


def _addresses(css: str) -> Iterator[str]:
    for match in _CSS.finditer(css):
        yield match["url"] or match["import"]


def _outside(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return ""
    return "lies outside of the site" if parts.scheme or parts.netloc else ""


def _dead(address: str, path: Path, pages: dict[Path, Page], site: Path) -> str:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or address in ("", "#"):
        return ""
    target = path if not parts.path else _file(path.parent, parts.path, site)
    if target is None:
        return "leads to no file of the site"
    if parts.fragment and target.suffix == ".html":
        page = pages.get(target)
        if page is not None and unquote(parts.fragment) not in page.ids:
            return "leads to an anchor that is not there"
    return ""


@functools.cache
def _file(folder: Path, address: str, site: Path) -> Path | None:
    """The file of the site that an address leads to from a folder, None where it leads to none."""
    target = (folder / unquote(address)).resolve()
    if target.is_dir():
        target = target / "index.html"
    return target if target.is_file() and target.is_relative_to(site.resolve()) else None
