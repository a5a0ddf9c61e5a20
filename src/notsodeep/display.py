"""How objects look in a notebook: small tables in the colours of the page, light or dark."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from notsodeep.text import printable

__all__ = ["card", "curve", "escaped", "indexed", "mathematics", "typeset"]

_FAINT = "opacity:.65"
_LINE = "border-bottom:1px solid rgba(128,128,128,.3)"
_GOOD, _BAD = ("✓", "#2e9e5b"), ("✗", "#d9534f")
_MOST_ROWS = 24
_NUMBER, _WHOLE = re.compile(r"[-+≤≈ ]*\d[\d.]*(e[-+]\d+)?( ?[%×]| m?s)?"), ";white-space:nowrap"
_SYMBOL = re.compile(  # a letter and its index; a power
    r"(?<![A-Za-z_.])([A-Za-zα-ωΑ-Ω][\u0300-\u036f]?)_(\{[^{}]*\}|[A-Za-z0-9]+|\*)"
    r"|(?<![A-Za-z0-9_.])([α-ωΑ-Ωc])([0-3])(?![A-Za-z0-9_]|\.\d)"
    r"|(?<=[\w)\]}])\^(\{[^{}]*\}|[−-]?\d+(?:/\d+)?|[A-Za-z0-9]+)"
)
_PIECE = re.compile(  # numbers, names of functions, letters with an index or without
    r"\d[\d.]*(?:e[-+]?\d+)?"
    r"|(?P<indexed>[A-Za-zα-ωΑ-Ω])(?:_(?P<index>\{[^{}]*\}|[A-Za-z0-9]+|\*)|(?P<digit>\d))"
    r"|[A-Za-z_]{2,}\w*"
    r"|(?P<letter>[A-Za-zα-ωΑ-Ω])"
)


def escaped(value: object) -> str:
    """Text that cannot act as markup or reorder what surrounds it.

    Examples
    --------
    >>> escaped("<b> & σ")
    '&lt;b&gt; &amp; σ'
    """
    return html.escape(printable(value))


def mathematics(text: str) -> str:
    """A sentence or a formula in plain text, escaped, with its indices lowered and its powers raised.

    Examples
    --------
    >>> mathematics("4 σ_a² L² < 1")
    '4 <i>σ</i><sub>a</sub>² L² &lt; 1'
    >>> mathematics("K_{ij}, c1, λ0^{3/2}, τ0²")
    '<i>K</i><sub>ij</sub>, <i>c</i><sub>1</sub>, <i>λ</i><sub>0</sub><sup>3/2</sup>, <i>τ</i><sub>0</sub>²'
    """
    return indexed(escaped(text))


def indexed(markup: str) -> str:
    """Indices and powers in text that is escaped already.

    Examples
    --------
    >>> indexed("b_k &ge; 0")
    '<i>b</i><sub>k</sub> &ge; 0'
    """

    def replaced(found: re.Match[str]) -> str:
        letter, index, symbol, digit, power = found.groups()
        if power:
            return f"<sup>{power.strip('{}')}</sup>"
        return f"<i>{letter or symbol}</i><sub>{(index or digit).strip('{}')}</sub>"

    return _SYMBOL.sub(replaced, markup)


def typeset(text: str) -> str:
    """One line of mathematics: letters slanted, indices lowered, functions and numbers upright.

    Examples
    --------
    >>> typeset("z* = φ(σ_a A z*)")
    '<i>z</i>* = <i>φ</i>(<i>σ</i><sub>a</sub> <i>A</i> <i>z</i>*)'
    >>> typeset("σ1(x) = leaky_relu(x; b=1e-05) - 2")
    '<i>σ</i><sub>1</sub>(<i>x</i>) = leaky_relu(<i>x</i>; <i>b</i>=1e-05) − 2'
    """

    def piece(found: re.Match[str]) -> str:
        if found["indexed"]:
            index = html.escape((found["index"] or found["digit"]).strip("{}"))
            return f"<i>{found['indexed']}</i><sub>{index}</sub>"
        return f"<i>{found[0]}</i>" if found["letter"] else found[0]

    text, done, at = printable(text).replace(" - ", " − "), [], 0
    for found in _PIECE.finditer(text):
        done += [html.escape(text[at : found.start()]), piece(found)]
        at = found.end()
    return "".join([*done, html.escape(text[at:])])


def card(
    title: str,
    rows: Iterable[Sequence[object]] = (),
    *,
    formula: str = "",
    header: Sequence[str] = (),
    verdict: tuple[bool, str] | None = None,
    notes: Iterable[str] = (),
    picture: str = "",
) -> str:
    """A heading, a verdict, a formula, a table and remarks as HTML. All text is escaped except `picture`.

    Examples
    --------
    >>> "<b>DEQ</b>" in card("DEQ", [("recurrent, σ_a²", "0.2")])
    True
    """
    parts = [f"<b>{escaped(title)}</b>"]
    if verdict is not None:
        sign, colour = _GOOD if verdict[0] else _BAD
        parts[0] += f' &nbsp;<b style="color:{colour}">{sign}</b> {mathematics(verdict[1])}'
    if formula:
        parts.append(f'<div style="font-family:serif;font-size:1.1em;margin:.3em 0">{typeset(formula)}</div>')
    lines = [tuple(row) for row in rows]
    if lines:
        shown = [_row(row) for row in lines[:_MOST_ROWS]]
        if len(lines) > _MOST_ROWS:
            shown.append(f'<tr><td style="{_FAINT}">… {len(lines) - _MOST_ROWS} more</td></tr>')
        heads = "".join(
            f'<th style="{_cell(k)};{_FAINT};{_LINE}">{mathematics(one)}</th>' for k, one in enumerate(header)
        )
        table = (f"<tr>{heads}</tr>" if heads else "") + "".join(shown)
        parts.append(f'<table style="border-collapse:collapse;margin:.4em 0;color:inherit">{table}</table>')
    parts += [picture] if picture else []
    parts += [f'<div style="{_FAINT}">{mathematics(note)}</div>' for note in notes]
    return f'<div style="color:inherit;line-height:1.45">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def curve(x: Sequence[float], y: Sequence[float], marks: Sequence[float] = (), label: str = "") -> str:
    """A small drawing of a curve, in the colour of the text, with triangles on its axis.

    Examples
    --------
    >>> curve([0, 1, 2], [0, 1, 0], marks=[3]).count("<path")
    2
    """
    width, height = 320, 80
    low, high = min((*x, *marks)), max((*x, *marks))
    across, up = (width - 12) / ((high - low) or 1.0), (height - 12) / (max(y) or 1.0)
    points = " ".join(f"{6 + across * (a - low):.1f},{height - 6 - up * b:.1f}" for a, b in zip(x, y, strict=True))
    triangles = "".join(
        f'<path d="M{6 + across * (mark - low):.1f} {height - 6}l-4 -9h8z" fill="#d9534f"/>' for mark in marks
    )
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg {size} role="img" aria-label="{escaped(label)}">'
        f'<path d="M0 {height - 5}h{width}" stroke="currentColor" opacity=".4"/>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>{triangles}</svg>'
    )


def _row(cells: Sequence[object]) -> str:
    return (
        "<tr>"
        + "".join(
            f'<td style="{_cell(k)}{_WHOLE if _NUMBER.fullmatch(str(one)) else ""}">{mathematics(str(one))}</td>'
            for k, one in enumerate(cells)
        )
        + "</tr>"
    )


def _cell(position: int) -> str:
    side = "left" if position == 0 else "right"
    return f"text-align:{side};padding:.1em .8em .1em 0;background:none"
