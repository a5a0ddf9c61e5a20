"""Make untrusted text safe for its destination: a terminal, a spreadsheet, a stream with a small encoding."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from collections.abc import Iterable
from typing import Any

__all__ = ["cell", "listed", "printable", "speak_plainly", "spelt"]

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control characters, direction marks, surrogates, line separators
_FORMULA = tuple("=+-@＝＋－＠\t\r\n")  # a spreadsheet evaluates cells that begin with these
_ERRORS = "notsodeep"
_SPELT = {
    **{"·": "*", "×": "x", "∗": "*", "−": "-", "–": "-", "—": "--", "…": "...", "→": "->", "↦": "|->", "⇒": "=>"},
    **{"≤": "<=", "≥": ">=", "≈": "~", "∝": "~", "≠": "!=", "≫": ">>", "≪": "<<", "±": "+-", "√": "sqrt", "∞": "inf"},
    **{"‖": "||", "∈": "in", "∫": "int", "½": "1/2", "′": "'", "″": '"', "‘": "'", "’": "'", "“": '"', "”": '"'},
}


def printable(text: object, keep: str = "") -> str:
    r"""Text for a terminal: characters that control it or reorder text are escaped.

    Examples
    --------
    >>> print(printable("\x1b[31mred σ"))
    \x1b[31mred σ
    """
    written = str(text)
    if written.isprintable():
        return written
    return "".join(
        one.encode("unicode_escape").decode("ascii")
        if unicodedata.category(one) in _UNSEEN and one not in keep
        else one
        for one in written
    )


def cell(value: Any) -> Any:
    """A value for a CSV file: text that a spreadsheet would evaluate as a formula is prefixed with an apostrophe.

    Examples
    --------
    >>> cell("=HYPERLINK(1)"), cell("-1"), cell(-1.0), cell("setosa")
    ("'=HYPERLINK(1)", '-1', -1.0, 'setosa')
    """
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def listed(items: Iterable[object], limit: int = 10) -> str:
    """Items separated by commas, printable and each cut to 60 characters; the rest of a long list is counted.

    Examples
    --------
    >>> listed("abc", limit=2), listed(["one"])
    ('a, b, … 1 more', 'one')
    """
    texts = [printable(item)[:60] for item in items]
    return ", ".join(texts[:limit]) + (f", … {len(texts) - limit} more" if len(texts) > limit else "")


def speak_plainly() -> None:
    """Let the standard streams replace characters that their encoding lacks (σ by ``sigma``) instead of failing."""
    codecs.register_error(_ERRORS, _spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_ERRORS)


def spelt(text: str) -> str:
    """Text with the characters that standard output lacks replaced, for libraries that write past its error handler."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, _ERRORS).decode(encoding)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(one: str) -> str:
    """One character in ASCII.

    >>> [_ascii(one) for one in "σ²₁‖é∇"]
    ['sigma', '^2', '1', '||', 'e', '\\\\u2207']
    """
    if one in _SPELT:
        return _SPELT[one]
    name = unicodedata.name(one, "")
    if name.startswith("GREEK ") and " LETTER " in name:
        word = name.rpartition(" LETTER ")[2].split()[0].lower()
        return word.capitalize() if " CAPITAL " in name else word
    base = unicodedata.normalize("NFKD", one).encode("ascii", "ignore").decode()
    if base:
        return f"^{base}" if unicodedata.decomposition(one).startswith("<super>") else base
    return "" if unicodedata.combining(one) else one.encode("ascii", "backslashreplace").decode()
