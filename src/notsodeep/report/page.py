"""Self-contained HTML pages: prose, tables, interactive plots, pictures, code.

    render("Title", [Section("First", [Prose("Words."), Plot(figure, alt="…")]), …]) → HTML

Plots are Plotly figures (objects or dictionaries). A colour may be written as ``color("implicit")``: it is looked up in
:data:`notsodeep.report.style.THEMES` and follows the reader's light or dark theme.
plotly.js is embedded, compressed. A content security policy allows two scripts by their checksums: the page's own and
plotly.js. It blocks every other script or handler that text might inject, and all network access.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from notsodeep import __version__
from notsodeep.checks import InputError
from notsodeep.display import indexed, typeset
from notsodeep.extras import need
from notsodeep.report.style import THEMES
from notsodeep.text import printable

__all__ = [
    "Code",
    "Equations",
    "Facts",
    "Part",
    "Picture",
    "Plot",
    "Prose",
    "Row",
    "Section",
    "Table",
    "color",
    "plain",
    "render",
]

_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
_MARKS = re.compile(r"\\([\\`*\[\]_^0-3])|`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_UPWARDS = r"(?:[^?#]*/)?(?:\.|%2[eE]){2}(?:[/?#]|$)"
_ADDRESS = re.compile(  # on the web, or beside the page
    rf"https?://[^\x00-\x20]+|(?!/|{_UPWARDS})[^:\\\x00-\x20\x7f]+"
)
_FORMATS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


def color(name: str, alpha: float = 1.0) -> str:
    """The colour called `name` in the style, in whichever theme the page is read; `alpha` below 1 is transparent.

    Examples
    --------
    >>> from notsodeep.report.page import color
    >>> color("implicit"), color("implicit", alpha=0.5)
    ('var(--implicit)', 'var(--implicit/80)')
    """
    if name not in THEMES["light"]:
        raise InputError(f"color={name!r} is not in the style (choose from {', '.join(THEMES['light'])})")
    return f"var(--{name})" if alpha == 1 else f"var(--{name}/{round(255 * alpha):02x})"


def plain(text: object) -> str:
    r"""Escape untrusted text for a :class:`Prose` or a :class:`Table`: no markup, no invisible characters.

    Examples
    --------
    >>> from notsodeep.report.page import plain
    >>> print(plain("[x](https://example.org)"))
    \[x\](https://example.org)
    """
    return re.sub(r"([\\`*\[\]_^]|(?<=[α-ωΑ-Ωc])[0-3])", r"\\\1", printable(text))


@dataclass(frozen=True)
class Prose:
    """Paragraphs of plain text, separated by blank lines; ```code```, ``**strong**`` and ``[text](address)`` work.

    Indices and powers of a letter are typeset: ``b_k``, ``σ_a²``, ``t^k``, ``K_{ij}``.
    An address begins with ``http://`` or ``https://``, or is relative to the page and does not lead out of its folder.
    Untrusted text must go through :func:`plain`.
    """

    text: str


@dataclass(frozen=True)
class Facts:
    """A few key numbers in large type, each with its meaning."""

    entries: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """Text in the first column and numbers in the others, or text in all of them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    numbers: bool = True


@dataclass(frozen=True)
class Plot:
    """A Plotly figure; `alt` says in words what it shows, `height` is in pixels.

    Axes and fonts get the colours and sizes of the page; put the title into `title`, where it wraps.
    """

    figure: Any
    alt: str
    title: str = ""
    caption: str = ""
    height: int = 360


@dataclass(frozen=True)
class Picture:
    """A PNG, SVG or JPEG file, embedded; `alt` says in words what it shows."""

    path: Path
    alt: str
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Code:
    """Preformatted text in a fixed-width font."""

    text: str


@dataclass(frozen=True)
class Equations:
    """Equations in plain text, one a line, typeset: ``z* = φ(σ_a A z* + σ_b B x) / √m``."""

    text: str


@dataclass(frozen=True)
class Row:
    """Parts side by side where there is room, below each other on a phone."""

    parts: Sequence[Part]


Part: TypeAlias = Prose | Facts | Table | Plot | Picture | Code | Equations | Row


@dataclass(frozen=True)
class Section:
    """A heading and what follows it; `anchor` is its address on the page, made from the title when empty."""

    title: str
    parts: Sequence[Part] = field(default_factory=tuple)
    anchor: str = ""


def render(title: str, sections: Sequence[Section], lead: Sequence[Part] = ()) -> str:
    """Return the whole page; `lead` stands between the title and the list of sections.

    Examples
    --------
    >>> from notsodeep.report.page import Prose, Section, Table, render
    >>> page = render("Two rows", [Section("Numbers", [Prose("Of `x`."), Table(("x", "x²"), [("2", "4")])])])
    >>> "<code>x</code>" in page and "http" not in page.split("<body>")[1]
    True
    """
    anchors = _anchors([section.anchor or section.title for section in sections])
    links = "".join(f'<a href="#{key}">{escape(one.title)}</a>' for key, one in zip(anchors, sections, strict=True))
    body = [
        f'<header><h1>{escape(title)}</h1><button type="button" id="theme" hidden>Dark</button></header>',
        *map(_html, lead),
        f'<nav aria-label="Contents"><b>Contents</b>{links}</nav>' if len(sections) > 1 else "",
    ]
    for key, section in zip(anchors, sections, strict=True):
        heading, content = escape(section.title), "\n".join(map(_html, section.parts))
        body.append(f'<section aria-labelledby="{key}"><h2 id="{key}">{heading}</h2>\n{content}\n</section>')
    sources = [_asset("page.js")]
    scripts = f"<script>{sources[0]}</script>"
    if any('<div class="plot"' in part for part in body):  # in text, quotes are escaped
        body.append("<noscript><p>The plots need JavaScript.</p></noscript>")
        sources.append(_plotly())
        scripts = f'<script type="text/plain" id="plotly">{_packed(sources[1])}</script>\n{scripts}'
    policy = _POLICY.format(scripts=" ".join(map(_fingerprint, sources)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{theme_rules()}\n{_asset('page.css')}</style>\n</head>\n"
        "<body>\n<main>\n"
        + "\n".join(filter(None, body))
        + f"\n</main>\n<footer>Written by notsodeep {__version__}; needs no network.</footer>\n"
        + f"{scripts}\n</body>\n</html>\n"
    )


def _html(part: Part) -> str:
    match part:
        case Prose(text):
            return "".join(f"<p>{_inline(one)}</p>" for one in re.split(r"\n\s*\n", text.strip()))
        case Facts(entries):
            return '<dl class="facts">' + "".join(
                f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for value, label in entries
            ) + "</dl>"  # fmt: skip
        case Table():
            return _table(part)
        case Plot():
            alt, height = escape(part.alt), part.height
            plot = f'<div class="plot" role="img" aria-label="{alt}" style="height:{height}px"></div>'
            return _figure(part, f'{plot}<script type="application/json">{_json(part.figure)}</script>')
        case Picture():
            return _figure(part, f'<img alt="{escape(part.alt)}" src="{_data_address(part.path)}">')
        case Code(text):
            return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
        case Equations(text):
            lines = "".join(f"<div>{typeset(line) or '&nbsp;'}</div>" for line in text.splitlines())
            return f'<div class="formula" tabindex="0" role="region" aria-label="Equations">{lines}</div>'
        case Row(parts):
            height = max((one.height for one in parts if isinstance(one, Plot)), default=0)
            level = (replace(one, height=height) if isinstance(one, Plot) else one for one in parts)
            return '<div class="row">' + "\n".join(map(_html, level)) + "</div>"


def _inline(text: str) -> str:
    return _marked(escape(text))


def _marked(text: str) -> str:
    """Convert the markup of escaped text to HTML."""

    def replaced(mark: re.Match[str]) -> str:
        literal, code, strong, label, address = mark.groups()
        if literal or code:
            return literal or f"<code>{code}</code>"
        if strong:
            return f"<strong>{_marked(strong)}</strong>"
        return f'<a href="{address}">{_marked(label)}</a>' if _ADDRESS.fullmatch(address) else mark[0]

    done, at = [], 0
    for mark in _MARKS.finditer(text):
        done += [indexed(text[at : mark.start()]), replaced(mark)]
        at = mark.end()
    return "".join([*done, indexed(text[at:])])


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in table.columns)
    body = "".join(
        f'<tr><th scope="row">{_inline(first)}</th>{_cells(rest, table.columns[1:])}</tr>'
        for first, *rest in table.rows
    )
    caption = f"<caption><div>{_inline(table.caption)}</div></caption>" if table.caption else ""
    kind = "numbers" if table.numbers else "words"
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Table"><table class="{kind}">{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(cells: Sequence[str], columns: Sequence[str]) -> str:
    """Cells that say which column they belong to: a narrow screen shows a row as a list."""
    labels = (escape(re.sub(r"[`*]", "", label)) for label in columns)
    return "".join(f'<td data-label="{label}">{_inline(cell)}</td>' for label, cell in zip(labels, cells, strict=False))


def _figure(part: Plot | Picture, content: str) -> str:
    title = f"<h3>{_inline(part.title)}</h3>" if part.title else ""
    caption = f"<figcaption>{_inline(part.caption)}</figcaption>" if part.caption else ""
    return f"<figure>{title}{content}{caption}</figure>"


def _data_address(path: Path) -> str:
    if path.suffix not in _FORMATS:
        raise InputError(f"path={str(path)!r} is not a picture; pass a {', '.join(_FORMATS)} file")
    return f"data:{_FORMATS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _json(figure: Any) -> str:
    """Check the figure and serialise it; arrays become base64, and text is escaped so that it cannot run as script."""
    if isinstance(figure, Mapping):
        figure = need("plotly.graph_objects").Figure(figure)
    content = json.loads(need("plotly.io").to_json(figure, validate=False, engine="json"))
    content["layout"].pop("template", None)  # the page has its own
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


@cache
def _plotly() -> str:
    return str(need("plotly.offline").get_plotlyjs())


@cache
def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 9, mtime=0)).decode("ascii")


@cache
def _fingerprint(script: str) -> str:
    """Checksum by which a content security policy recognises a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _asset(name: str) -> str:
    return (files("notsodeep.report") / name).read_text(encoding="utf-8")


def theme_rules() -> str:
    """CSS variables of both themes."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in THEMES[theme].items()) + f"color-scheme:{theme};"
        for theme in ("light", "dark")
    )
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f':root[data-theme="light"]{{{light}}}\n:root[data-theme="dark"]{{{dark}}}'
    )


def _anchors(titles: Sequence[str]) -> list[str]:
    """A unique anchor for each heading."""
    result: list[str] = []
    for title in titles:
        key = base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        count = 1
        while key in result:
            count += 1
            key = f"{base}-{count}"
        result.append(key)
    return result
