"""Write docs/coverage.md: every statement of the papers, with its code, its tests and its figures.

Run ``python -m docs.coverage`` from the root of the repository. A comment ``# covers: [Ling24] Thm 3.3; [FK20] Thm 2``
above a function or a class says what it implements, above a test what it checks. Above ``measure`` of a reproduction it
says what its entry shows; where several entries share the function, it names one:
``# covers: [FK20] Thm 3 @ fk20-table2``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from notsodeep import files
from notsodeep.papers.entry import Entry
from notsodeep.papers.registry import ENTRIES

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^\s*# covers: (?P<names>.+)$")
DRAWN = re.compile(r"(Figure|Table) \d+$")
REMARK = "an observation, nothing to compute"
TOOL = "a step of a proof; its consequences are checked"
KNOWN = "a known inequality, used in a proof"
BOUND = "a bound with unknown constants"

HEAD = """# Coverage of the papers

Every definition, assumption, theorem, proposition, lemma, remark, example, figure and table of the papers and of the
slides: where it is implemented, which test checks it, which [reproduction](gallery.md) shows it. The code of a figure
is the function that measures its numbers. Written by `python -m docs.coverage` from comments `# covers: …` in the code
and in the tests. A test fails when a comment names a statement that is not here or stands above no function, and when
a statement has neither code nor a reason, or code without a test.
"""


class Statement(NamedTuple):
    """What a paper states, in our words; and why there is no code for it, if there is none."""

    name: str
    what: str
    reason: str = ""


STATEMENTS = {
    "[Ling24]": (
        Statement("Def. 2.1", "the DEQ"),
        Statement("Asm. 2.2", "i.i.d. weights of mean 0 and variance 1"),
        Statement("Asm. 2.3", "Lipschitz activations with finite moments"),
        Statement("Asm. 2.4", "σ_a² < 1/(4L²): a unique equilibrium"),
        Statement("Rem. 2.5", "what CKs and NTKs are good for", REMARK),
        Statement("Prop. 2.6", "CK and NTK of a DEQ, Eq. (5) to (7)"),
        Statement("Def. 2.7", "Gaussian mixtures in high dimension"),
        Statement("Rem. 2.8", "why the mixture is scaled as it is", REMARK),
        Statement("Eq. (10)", "the fixed point τ_*"),
        Statement("Asm. 3.1", "σ_a² below 2/E[(φ²)'']"),
        Statement("Rem. 3.2", "τ_* exists and is unique"),
        Statement("Thm 3.3", "the equivalent of the CK of a DEQ"),
        Statement("Thm 3.4", "the equivalent of the NTK of a DEQ"),
        Statement("Rem. 3.5", "centred activations"),
        Statement("Def. 3.6", "explicit networks"),
        Statement("Prop. 3.7", "CK and NTK of explicit networks"),
        Statement("Thm 3.8", "the equivalent of the CK of an explicit network"),
        Statement("Rem. 3.9", "when one hidden layer is enough, and when two are needed"),
        Statement("Ex. 3.10", "a hard tanh for a tanh DEQ"),
        Statement("Ex. 3.11", "two leaky relus for a relu DEQ"),
        Statement("Asm. A.1", "Def. 2.7 once more, with a limit of τ_0"),
        Statement("Lemma A.2", "the variances of the layers converge to τ_*²"),
        Statement("Lemma B.1", "E[φφ] expanded in small differences of the covariance", TOOL),
        Statement("App. D", "how the parameters of both examples are found"),
        *(Statement(f"Figure {k}", what) for k, what in (
            (1, "error of the CK's equivalent against n"),
            (2, "activations, and the distance of both CKs"),
            (3, "accuracy against width"),
            (4, "error of the NTK's equivalent against n"),
            (5, "eigenvalues of the CK and of its equivalent"),
            (6, "eigenvalues of the NTK and of its equivalent"),
            (7, "eigenvalues of the CKs of both networks"),
        )),
        Statement("Table 1", "time of inference"),
        Statement("Table 2", "time of training"),
    ),
    "slides of [Ling24]": (
        Statement("Definition", "the DEQ, as Def. 2.1"),
        Statement("Asm. 1", "weights, activations and variances, as in Asm. 2.2 to 2.4 and 3.1"),
        Statement("Remark on Asm. 1", "where it holds; the equilibrium exists and is unique"),
        Statement("Asm. 2", "Gaussian mixtures, as in Def. 2.7"),
        Statement("Remark on Asm. 2", "why mixtures are a fair model of data", REMARK),
        Statement("Implicit CK", "as in Prop. 2.6"),
        Statement("Implicit NTK", "as in Prop. 2.6"),
        Statement("Thm 1", "as Thm 3.3 of the paper"),
        Statement("Thm 2", "as Thm 3.4 of the paper"),
        Statement("Remark on Thm 1 and 2", "the equivalents depend on the network through four numbers alone"),
        Statement("Thm 3", "as Thm 3.8 of the paper"),
        Statement("Key idea", "an explicit network with the four numbers of the DEQ's CK"),
        Statement("Implicit- versus Explicit-CK", "when one layer is enough, as Rem. 3.9"),
        Statement("Remark on NTKs", "NTKs can be matched likewise"),
        Statement("Examples", "as Ex. 3.10 and 3.11 of the paper"),
        Statement("Figure 1", "error of the CK's equivalent against n"),
        Statement("Figure 2", "the distance of both CKs"),
        Statement("Figure 3", "accuracies"),
    ),
    "[Ling23]": (
        Statement("Asm. 1", "random initialisation with σ_w² < 1/8"),
        Statement("Asm. 2", "inputs of norm √d, no two parallel"),
        Statement("Lemma 1", "‖W‖ below 1 at the start, so that an equilibrium exists"),
        Statement("Lemma 2", "the gradients of the loss"),
        Statement("Def. 1", "the population Gram matrix"),
        Statement("Condition 1", "three inequalities at the start, Eq. (7) to (9)"),
        Statement("Thm 1", "a linear rate, and ‖W‖ < 1 throughout"),
        Statement("Thm 2", "λ_0 ≥ (m/2) λ_* once the network is wide enough"),
        Statement("Lemma 3", "cosines of the population Gram matrix, layer by layer"),
        Statement("Thm 3", "the population Gram matrix converges geometrically, and is positive definite"),
        Statement("Thm 4", "the empirical Gram matrix converges with depth", BOUND),
        Statement("Lemma 4", "a layer rebuilt from fresh Gaussian weights", TOOL),
        Statement("Thm 5", "the empirical Gram matrix approaches the population's", BOUND),
        Statement("Lemma 5", "Weyl: singular values move by at most the norm of a change", KNOWN),
        Statement("Lemma 6", "the least eigenvalue of a Hadamard product", KNOWN),
        Statement("Lemma 7", "the power series of the relu's dual"),
        Statement("Lemma 8", "bounds of states, gradients and their changes, Eq. (15) to (18)"),
        Statement("Lemma 9", "Thm 5 on the diagonal", BOUND),
        Statement("Lemma 10", "Thm 5 off the diagonal", BOUND),
        Statement("Figure 1", "losses of gradient descent at several widths"),
    ),
    "[FK20]": (
        Statement("NTK initialization", "standard Gaussian weights"),
        Statement("Rem. 1", "untied weights give the kernels of tied ones"),
        Statement("Thm 1", "the DEQ-NTK of finite depth"),
        Statement("DEQ-NTK initialization", "σ_W² + σ_U² + σ_b² = 1"),
        Statement("Def. 3.1", "normalised activations"),
        Statement("Thm 2", "the DEQ-NTK in the limit"),
        Statement("Rem. 2", "the limit depends on both inputs", REMARK),
        Statement("CDEQ-NTK initialization", "σ_W² + σ_U² = 1, and a window sum divided by S"),
        Statement("Thm 3", "the convolutional DEQ-NTK"),
        Statement("Lemma 1", "the sum converges absolutely for σ_W² < 1"),
        Statement("Figure 1", "accuracy of NTK and DEQ-NTK against depth"),
        Statement("Table 1", "accuracy on MNIST"),
        Statement("Table 2", "accuracy on CIFAR-10"),
    ),
}  # fmt: skip


class Marker(NamedTuple):
    """A comment: which statement and entry, and the file, line and name of what stands below it."""

    statement: str
    entry: str
    path: Path
    line: int
    name: str

    @property
    def in_tests(self) -> bool:
        return self.path.parts[0] == "tests"

    @property
    def choices(self) -> list[str]:
        """Names of the entries that its module measures."""
        if self.in_tests or "papers" not in self.path.parts:
            return []
        return [entry.name for entry in ENTRIES.values() if _measured_in(entry) == self.path.stem]


def markers(root: Path = ROOT) -> Iterator[Marker]:
    """All comments in the code and in the tests."""
    for path in sorted([*(root / "src").rglob("*.py"), *(root / "tests").rglob("*.py")]):
        text = path.read_text(encoding="utf-8")
        if "# covers: " not in text:
            continue
        places, lines = _definitions(ast.parse(text)), text.splitlines()
        for number, line in enumerate(lines, 1):
            if found := MARK.match(line):
                below = next((k for k in range(number, len(lines)) if not MARK.match(lines[k])), number)
                name = places.get(below + 1, "")
                for one in found["names"].split(";"):
                    statement, _, entry = one.partition(" @ ")
                    yield Marker(statement.strip(), entry.strip(), path.relative_to(root), number, name)


def _definitions(tree: ast.Module) -> dict[int, str]:
    """Names of functions, methods and classes by their line."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.lineno, node.name)
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    found[part.lineno] = f"{node.name}.{part.name}"
    return found


def statements() -> dict[str, Statement]:
    """All statements by their full name."""
    return {f"{paper} {one.name}": one for paper, group in STATEMENTS.items() for one in group}


def gaps(root: Path = ROOT) -> list[str]:
    """What is wrong: comments that name nothing or stand above nothing, statements without code or tests."""
    known, found = statements(), list(markers(root))
    wrong = []
    for one in found:
        where = f"{one.path}:{one.line}"
        if one.statement not in known:
            wrong.append(f"{where} names {one.statement!r}, which no paper states")
        if not one.name:
            wrong.append(f"{where} stands above no function")
        elif one.in_tests and not one.name.rpartition(".")[2].startswith("test_"):
            wrong.append(f"{where} stands above {one.name}, which is no test")
        elif one.choices and one.name != "measure":
            wrong.append(f"{where} stands above {one.name}, where nothing is measured")
        if one.entry and one.entry not in one.choices:
            wrong.append(f"{where} names {one.entry!r}, which is not measured there")
        if len(one.choices) > 1 and not one.entry:
            wrong.append(f"{where} must say which entry shows it: @ {' or '.join(one.choices)}")
    for name, statement in known.items():
        code, tests, entries = _parts([one for one in found if one.statement == name])
        if not code and not statement.reason:
            wrong.append(f"{name} has no code and no reason")
        if code and not tests:
            wrong.append(f"{name} has code but no test")
        if code and not entries and DRAWN.search(name):
            wrong.append(f"{name} is shown by no entry")
    return wrong


def _parts(own: list[Marker]) -> tuple[list[str], list[str], list[str]]:
    """Names of code, of tests and of entries."""
    code, tests, entries = [], [], []
    for one in own:
        if one.in_tests:
            tests.append(f"`{one.path.name}::{one.name}`")
            continue
        entries += [one.entry] if one.entry else one.choices
        if not one.choices or DRAWN.search(one.statement):
            code.append(f"`{_module(one.path)}.{one.name}`")
    return code, tests, [f"[{entry}](gallery.md#{entry})" for entry in dict.fromkeys(entries)]


def _measured_in(entry: Entry) -> str:
    """The module of its function `measure`."""
    return str(getattr(entry.measure, "func", entry.measure).__module__).rpartition(".")[2]


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts[2:]
    return ".".join(part for part in parts if part != "__init__")


def page(root: Path = ROOT) -> str:
    """The text of the page."""
    found = list(markers(root))
    lines = [HEAD]
    for paper, group in STATEMENTS.items():
        lines += [f"## {paper}", "", "| statement | what | code | tests | shown by |", "|:--|:--|:--|:--|:--|"]
        for one in group:
            own = [marker for marker in found if marker.statement == f"{paper} {one.name}"]
            cells = [", ".join(part) for part in _parts(own)]
            cells[0] = cells[0] or one.reason
            lines.append(f"| {one.name} | {one.what} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    if wrong := gaps():
        raise SystemExit("\n".join(wrong))
    print(files.write(Path(__file__).with_name("coverage.md"), page()))
