"""Typeset formulas that are written as plain text: a Markdown extension for pages and docstrings.

Sources stay readable in a terminal. ``4 σ_a² L² < 1`` and indented lines such as ``Λ = σ_a² G(Λ) + σ_b² P`` become TeX
for KaTeX; TeX between dollars is left alone. A formula in a sentence is a run of symbols, numbers and operators, at
least one of which can be nothing else.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

GREEK = "α-ωΑ-Ω"
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵀᵏˡᴸᵖⁿᵐⁱʲᵃᵇ", "0123456789+-=()⊤klLpnmijab", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼ", "0123456789+-ij", strict=True))
ACCENTS = {"\u0307": "dot", "\u0304": "bar", "\u0303": "tilde", "\u0302": "hat"}
SIGNS = {
    **{"·": r"\cdot ", "×": r"\times ", "−": "-", "≤": r"\le ", "≥": r"\ge ", "≈": r"\approx ", "∈": r"\in "},
    **{"→": r"\to ", "↦": r"\mapsto ", "∞": r"\infty ", "∂": r"\partial ", "∇": r"\nabla ", "±": r"\pm ", "∓": r"\mp "},
    **{
        "…": r"\dots ",
        "∗": r"\ast ",
        "~": r"\sim ",
        "½": r"\tfrac12 ",
        "⊕": r"\oplus ",
        "∪": r"\cup ",
        "∝": r"\propto ",
    },
    **{"≪": r"\ll ", "≫": r"\gg ", "∫": r"\int ", "≠": r"\ne ", "←": r"\gets ", "⊤": r"\top ", "∘": r"\circ "},
    **{"%": r"\%", "{": r"\{", "}": r"\}", "&": r"\&", "#": r"\#", "′": "'", "’": "'"},
}
KNOWN = {"tanh", "sin", "cos", "log", "exp", "det", "min", "max", "sup", "inf", "arccos", "arctan", "lim"}
NAMED = {
    *("tr", "Tr", "Var", "Cov", "diag", "erf", "erfc", "clip", "relu", "rank", "sign", "sigmoid"),
    *("ridge", "bias", "mean", "scale", "stretch", "shift", "drive"),
}
FUNCTIONS = KNOWN | NAMED
OPERATORS = frozenset("=<>+−/·×≤≥≈∈→↦~±∝≪≫←⊕∪≠∗")
AROUND = "()[],.;:?!*"
PRODUCT = re.compile(r"[A-Z]{2,3}|[UVW][hxyz]|cx|df|dt|nk|tt|ps|gA|zI")  # of matrices and vectors, not a word
QUIET = {"a", "A", "I", "C", "e", "i", "s"}  # single letters that are words of a sentence
LETTER = rf"[A-Za-z{GREEK}]"
WORD = r"[A-Za-z]{2,}"
SURE = re.compile(  # what only a formula contains; text decomposed, so that accents are characters
    rf"[{GREEK}∂∇√‖∞{''.join(RAISED)}{''.join(LOWERED)}\u0302-\u0307]|(?<![\w.])[A-Za-z]_[\w{{*(]|\^|\bE\["
)
WEAK = re.compile(  # what may belong to one
    r"[±−]?(\d{1,3}(,\d{3})+|\d+(\.\d+)?)|½|\d+/\(\d+|\d/sup|\d?[A-Za-z]|" + "|".join(sorted(FUNCTIONS))
)
CLOSED = re.compile(r"[-\d.A-Za-z()\[\],|'*…" + "".join(OPERATORS) + r"]+")
NOT_CLOSED = re.compile(
    r"I/O|[A-Za-z]+-[A-Za-z]+|\d+(\.\d+)?e[-+]?\d+|[A-Za-z]{2,}|[a-z](\.[a-z])+|\d+[a-zA-Z]+|[A-Za-z]{2,}\d+|[A-Z]\d+"
    r"|[A-Z]+-\w+|.*[A-Za-z]{2}/.*|.*/[A-Za-z]{2}.*|.*('s|n't)"
)
ROLE = re.compile(r":(?:func|meth|class|mod|attr|data|exc):(`)~?")  # of docstrings; a page shows the name alone
SPARED = re.compile(  # code, TeX, links, HTML, citations, attributes
    r"(`+.*?`+|\$\$.*?\$\$|(?<![\w$])\$(?!\s)[^$\n]*?(?<!\s)\$(?![\w$])|\\\(.*?\\\)|!?\[[^\]]*\]\([^)]*\)|<!--.*?-->"
    r"|</?[a-zA-Z][^>]*>|\[(?:Ling|FK|Gu|Schoenberg|Simon)[^\]]*\]|https?://\S+|\x02[^\x03]*\x03|\{[^}]*[:#][^}]*\})",
    flags=re.DOTALL,
)


def tex(text: str, fractions: bool = False) -> str:
    r"""Plain text to TeX.

    Examples
    --------
    >>> tex("Λ = σ_a² G(Λ)")
    'Λ = σ_{a}^{2} G(Λ)'
    >>> print(tex("‖A‖ ≈ 2√m, α_{*,1}, Ġ, n^−1/2, E[φ'(τξ)²], c1 XXᵀ"))
    \lVert A\rVert \approx 2\sqrt{m}, α_{*,1}, \dot{G}, n^{-1/2}, \mathbb{E}[φ'(τξ)^{2}], c_{1} XX^{\top}
    """
    text = unicodedata.normalize("NFD", text.replace("≠", "\x05")).replace("\x05", "≠")
    text = re.sub(r"\[\[(.*?)\], \[(.*?)\]\]", _matrix, text)
    if fractions:
        text = _fractions(text)
    text = re.sub(r"(?<=\d)[ ,](?=\d{3}\b)", _ready(r"\,"), text)
    text = re.sub(r"(?<=\S) {2,}(?=\S)", _ready(r" \quad "), text)
    return re.sub(r" {2,}", " ", "".join(_pieces(text))).strip()


def _ready(code: str) -> Any:
    """TeX that is not translated again, for re.sub."""
    return lambda _: f"\x00{code}\x01"


def _matrix(found: re.Match[str]) -> str:
    rows = (" & ".join(tex(cell) for cell in row.split(", ")) for row in found.groups())
    return "\x00" + r"\begin{bmatrix}" + r" \\ ".join(rows) + r"\end{bmatrix}" + "\x01"


def _fractions(text: str) -> str:
    """``a/(b + c)`` as a fraction: the run before the slash over the bracket after it."""
    while found := re.search(r"(\S+)/\(", text):
        opened = found.end() - 1
        closed, start, depth = _partner(text, opened), found.start(), 0
        for k in range(opened - 2, found.start() - 1, -1):  # not beyond an open bracket or an operator
            depth += (text[k] in ")]") - (text[k] in "([")
            if depth < 0 or (depth == 0 and text[k] in "+−=<>,·"):
                start = k + 1
                break
        above = text[start : opened - 1]
        if closed < 0 or not above:
            text = f"{text[: opened - 1]}\x04{text[opened:]}"
            continue
        if above[0] == "(" and _partner(above, 0) == len(above) - 1:
            above = above[1:-1]
        fraction = rf"\frac{{{tex(above)}}}{{{tex(text[opened + 1 : closed])}}}"
        text = f"{text[:start]}\x00{fraction}\x01{text[closed + 1 :]}"
    return text.replace("\x04", "/")


def _partner(text: str, start: int) -> int:
    """Where the bracket at `start` is closed, or −1."""
    depth = 0
    for k in range(start, len(text)):
        depth += (text[k] in "([{") - (text[k] in ")]}")
        if depth == 0:
            return k
    return -1


def _script(found: re.Match[str]) -> str:
    inside = next(one for one in found.groups()[1:] if one is not None)
    if re.fullmatch(r"[A-Za-z]+", inside):
        inside = rf"\mathrm{{{inside}}}" if len(inside) > 2 else inside
    else:
        inside = tex(inside)
    return f"{found[1]}{{{inside}}}"


RULES: list[tuple[re.Pattern[str], Any]] = [
    (re.compile("\x00([^\x01]*)\x01"), lambda m: m[1]),
    (
        re.compile(rf"√([\d.]+|{LETTER}[{''.join(ACCENTS)}]?(?:_\w|\d)?)"),
        lambda m: rf"\sqrt{{{tex(m[1])}}}",
    ),
    (re.compile(f"[{''.join(RAISED)}]+"), lambda m: "^{" + tex("".join(RAISED[one] for one in m[0])) + "}"),
    (re.compile(f"[{''.join(LOWERED)}]+"), lambda m: "_{" + "".join(LOWERED[one] for one in m[0]) + "}"),
    (
        re.compile(rf"([_^])(?:\{{([^{{}}]*)\}}|\(([^()]*)\)|(\*|[−-]?[\d./]*\d|[−-]?[A-Za-z]+|[−-]?[∞{GREEK}]))"),
        _script,
    ),
    (re.compile(r"E(?=[\[‖])"), lambda m: r"\mathbb{E}"),
    (re.compile("∈ R"), lambda m: r"\in \mathbb{R}"),
    (re.compile(rf"({LETTER})([{''.join(ACCENTS)}])"), lambda m: rf"\{ACCENTS[m[2]]}{{{m[1]}}}"),
    (re.compile(rf"({LETTER})(\d+)(?!\d|\.\d)"), lambda m: f"{m[1]}_{{{m[2]}}}"),
    (re.compile(rf"Σ(?=_|\s+[\w(√‖{GREEK}])"), lambda m: r"\sum "),
    (re.compile(rf"Π(?=_|\s+[\w(√‖{GREEK}])"), lambda m: r"\prod "),
    (re.compile(rf"(?<={LETTER})\*([{''.join(RAISED)}]*)"), lambda m: "^{*" + "".join(RAISED[x] for x in m[1]) + "}"),
]


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        matches = ((rule.match(text, at), make) for rule, make in RULES)
        found, make = next((pair for pair in matches if pair[0]), (None, None))
        if text.startswith("√(", at) and (end := _partner(text, at + 1)) > 0:
            yield rf"\sqrt{{{tex(text[at + 2 : end])}}}"
            at = end + 1
        elif phrase := _phrase(text, at):
            yield _named(phrase, text[:at], text[at + len(phrase) :])
            at += len(phrase)
        elif found and make:
            yield make(found)
            at = found.end()
        else:
            yield _sign(text, at)
            at += 1


def _phrase(text: str, at: int) -> str:
    """A function, or the words that begin here."""
    found = re.compile(rf"{WORD}(?: {WORD})*").match(text, at)
    if not found or (at and text[at - 1].isalpha()):
        return ""
    first, *more = found[0].split()
    return (
        first if first in FUNCTIONS else " ".join([first, *itertools.takewhile(lambda one: one not in FUNCTIONS, more)])
    )


def _named(phrase: str, before: str, after: str) -> str:
    if phrase in KNOWN:
        return rf"\{phrase} "
    if phrase in NAMED:
        return rf"\operatorname{{{phrase}}}"
    if PRODUCT.fullmatch(phrase):
        return phrase
    left = "~" if before.endswith(" ") and before.rstrip()[-1:] not in (*OPERATORS, ",", "") else ""
    right = "~" if re.match(r" [^\s=+−·/,.)]", after) else ""
    return rf"{left}\text{{{phrase}}}{right}"


def _sign(text: str, at: int) -> str:
    sign = text[at]
    if sign not in "‖|":
        return SIGNS.get(sign, sign)
    side = "r" if text[:at].count(sign) % 2 else "l"
    return rf"\{side}{'V' if sign == '‖' else 'v'}ert "


def inline(text: str) -> str:
    r"""A paragraph with its formulas between ``\(`` and ``\)``.

    Examples
    --------
    >>> print(inline("The map contracts if 4 σ_a² L² < 1, with a margin."))
    The map contracts if \(4 σ_{a}^{2} L^{2} < 1,\) with a margin.
    >>> print(inline("Choose p/n = 0.8, not more than 10 samples of a class."))
    Choose \(p/n = 0.8,\) not more than 10 samples of a class.
    """
    parts = SPARED.split(text)
    return "".join(part if k % 2 else _sentence(part) for k, part in enumerate(parts))


def _sentence(text: str) -> str:
    words = re.split(r"(\s+|(?<!\S)\|(?!\S)|\*\*)", text)  # words, and at odd places what separates them
    done: list[str] = []
    k = 0
    while k < len(words):
        end = -1 if k % 2 or not words[k] else _last(words, k)
        if end < 0:
            done.append(words[k])
            k += 1
        else:
            before, formula, after = _trimmed("".join(words[k : end + 1]))
            if after in (",", ".", ";"):  # inside, so that no line begins with it
                formula, after = formula + after, ""
            done.append(f"{before}\\({tex(formula)}\\){after}")
            k = end + 1
    return "".join(done)


def _trimmed(text: str) -> tuple[str, str, str]:
    """Punctuation before a formula, the formula, and punctuation after it."""
    before = after = ""
    while True:
        wrapped = text[0] in "([" and _partner(text, 0) == len(text) - 1 and "," not in text
        if text[-1] in ".,;:?!" or (text[-1] in ")]" and _surplus(text) < 0) or (text[-1] == "*" and text[0] == "*"):
            text, after = text[:-1], text[-1] + after
        elif text[0] == "*" or wrapped or (text[0] in "([" and _partner(text, 0) < 0):
            before, text = before + text[0], text[1:]
        else:
            return before, text, after


def _surplus(text: str) -> int:
    return sum(text.count(one) for one in "([") - sum(text.count(one) for one in ")]")


def _kind(word: str) -> str:
    """``sure``, ``weak`` or ``operator`` as a part of a formula; empty for other words."""
    bare = word.strip(AROUND) if len(word) > 1 else word
    if not bare or bare in OPERATORS or bare == "…":
        return "operator" if bare else ""
    plain = unicodedata.normalize("NFD", bare)
    if SURE.search(plain):
        plain = re.sub(rf"[_^]\{{?{WORD}\}}?", "", plain)
        words = [one for one in re.findall(WORD, plain) if len(one) > 2 and one not in FUNCTIONS and not one.isupper()]
        return "sure" if not words or set("/·‖(") & set(bare) or re.search(rf"\w[{''.join(RAISED)}]", plain) else ""
    if WEAK.fullmatch(bare):
        return "weak"
    if re.fullmatch(r"[a-z]\d|[UVW][hxyz]", bare):
        return "sure"
    words = [one for one in re.findall(WORD, bare) if one not in FUNCTIONS]
    if words or not CLOSED.fullmatch(bare) or NOT_CLOSED.fullmatch(bare) or not re.search("[A-Za-z]", bare):
        return ""
    return "sure" if re.search(r"[A-Za-z]\(|[/·×∗+−=<>|']", bare) else ""


def _last(words: list[str], start: int) -> int:
    """Index of the last word of the formula that begins at `start`, or −1 if none does."""
    kinds: list[str] = []
    for k in range(start, len(words), 2):
        word, kind = words[k], _kind(words[k])
        if not kind or (k > start and words[k - 1].strip()):
            break
        joined = kinds[-1:] == ["operator"] or (k + 2 < len(words) and _kind(words[k + 2]) == "operator")
        if word.strip(AROUND) in QUIET and not joined and _surplus("".join(words[start:k])) <= 0:
            break
        kinds.append(kind)
        if word[-1] in ".;:?!" or (word[-1] == "," and _surplus("".join(words[start : k + 1])) <= 0):
            break
    while kinds and not _complete([one.strip(AROUND) for one in words[start : start + 2 * len(kinds) : 2]], kinds):
        kinds.pop()
    if len(kinds) == 1 and re.fullmatch(r"[A-Z]\.", words[start]):
        return -1  # the initial of a name
    return start + 2 * (len(kinds) - 1) if kinds else -1


def _complete(words: list[str], kinds: list[str]) -> bool:
    """Whether it begins and ends with an operand, and is surely a formula."""
    if "operator" in (kinds[0], kinds[-1]) or words[-1] in FUNCTIONS:
        return False
    if len(kinds) == 1:
        return kinds[0] == "sure" or (len(words[0]) == 1 and words[0].isalpha() and words[0] not in QUIET)
    beside = kinds[-1] == "weak" and kinds[-2] != "operator"
    grouped = re.fullmatch(r"\d{3}", words[-1]) and re.fullmatch(r"\d{1,3}", words[-2])
    if beside and (words[-1] in QUIET or words[-1][0].isdigit()) and not grouped:
        return False
    if kinds[:2] == ["weak", "weak"]:
        return len(kinds) == 2 and words[0] in KNOWN | {"tr", "Tr", "Var", "Cov", "diag"} and len(words[1]) == 1
    return "sure" in kinds or any(re.fullmatch(r"\d?[A-Za-z]\d?", one) for one in words)


def _grown(row: str) -> str:
    """Let brackets around a fraction grow with it."""
    if "\\frac" not in row:
        return row
    pairs = [(k, _partner(row, k)) for k, one in enumerate(row) if one in "(["]
    tall = [(k, end) for k, end in pairs if end > 0 and "\\frac" in row[k:end]]
    marks = {k: "\\left" for k, _ in tall} | {end: "\\right" for _, end in tall}
    return "".join(marks.get(k, "") + one for k, one in enumerate(row))


def displayed(lines: list[str]) -> str:
    """Indented lines as one displayed formula, aligned at their first relation; a remark stands at the right."""
    rows = []
    for line in lines:
        formula, *remark = re.split(r" {5,}", line.strip(), maxsplit=1)
        if remark and re.search(r"[=≈]", remark[0]):
            formula, remark = f"{formula}   {remark[0]}", []
        end = formula[-1] if formula[-1] in ".,;:" else ""
        row = _grown(tex(formula.removesuffix(end), fractions=True)) + end
        if len(lines) > 1:
            row = re.sub(r"=|\\approx ", r"&\g<0>", row, count=1)
        if remark:
            row += r" \qquad " + (tex(remark[0]) if SURE.search(remark[0]) else rf"\text{{{remark[0].strip()}}}")
        rows.append(row)
    return rows[0] if len(rows) == 1 else r"\begin{aligned}" + r" \\ ".join(rows) + r"\end{aligned}"


class PlainMathematics(Preprocessor):
    """Runs after fenced code has been put aside."""

    def run(self, lines: list[str]) -> list[str]:
        lines = [ROLE.sub(r"\1", line) for line in lines]
        done: list[str] = []
        paragraph: list[str] = []
        k = 0

        def flush() -> None:
            if paragraph:
                done.extend(inline("\n".join(paragraph)).split("\n"))
                paragraph.clear()

        while k < len(lines):
            line = lines[k]
            block = _block(lines, k)
            if not block and line.strip() and not line.startswith("|") and not re.match(_PLAIN, line):
                paragraph.append(line)
                k += 1
                continue
            flush()
            if (
                block
                and all(re.search(r"[=≈]", one) or SURE.search(one) for one in block)
                and not set('`"') & set("".join(block))  # code
            ):
                done += ["", f"$${displayed(block)}$$", ""]
            else:
                done += block or [inline(line) if line.startswith("|") and not re.match(_PLAIN, line) else line]
            k += len(block) or 1
        flush()
        return done


_PLAIN = r"#{1,6} |\s*\x02|\s*\$\$|\|[-:| ]+\|$|:::|</?(div|style|svg|p|figure)\b|\s*!!! |\[[^\]]+\]: "


def _block(lines: list[str], k: int) -> list[str]:
    """The indented lines that begin here, as a block of their own."""
    if not re.match(r" {4,7}[^\s\x02]", lines[k]) or (k and lines[k - 1].strip()) or _in_list(lines[:k]):
        return []
    return list(itertools.takewhile(lambda line: line.startswith("    "), lines[k:]))


def _in_list(before: list[str]) -> bool:
    """Whether an indented line continues an item of a list."""
    for line in reversed(before):
        if re.match(r"\s*([-*]|\d+\.) |!!! ", line):
            return True
        if line.strip() and not line.startswith("  "):
            return False
    return False


class MathematicsExtension(Extension):
    """For ``markdown_extensions`` of mkdocs.yml."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(PlainMathematics(md), "plain_mathematics", 21)  # after fences (25), before HTML (20)


def makeExtension(**options: Any) -> MathematicsExtension:  # noqa: N802
    return MathematicsExtension(**options)
