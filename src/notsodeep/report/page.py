"""One HTML page that needs nothing but itself: the pictures are inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["render"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .92em; }
pre { overflow-x: auto; padding: .8rem 1rem; border-radius: .4rem; background: rgb(128 128 128 / .12); }
table { border-collapse: collapse; margin: .8rem 0; }
th, td { padding: .25rem .9rem .25rem 0; text-align: right; border-bottom: 1px solid rgb(128 128 128 / .35); }
th:first-child, td:first-child { text-align: left; }
img { width: 100%; height: auto; background: white; border-radius: .4rem; }
.wide { overflow-x: auto; }
"""

_CAPTIONS = {
    "closeness": "Above: the two kernels side by side, and their difference. Below: every dot is a pair of samples; "
    "a network that replaces the implicit one puts all dots on the line.",
    "activations": "What each layer computes, over the distribution of the numbers it sees.",
    "spectra": "Eigenvalues of the exact kernels and of their high-dimensional equivalent.",
    "accuracy": "Both networks trained on the same data, with the same width and the same number of epochs.",
}


def render(content: Mapping[str, Any], folder: Path, pictures: Sequence[str]) -> str:
    """Return the page for the numbers of a study and the pictures in `folder`."""
    facts = content["data"]
    layers = "".join(
        f"<li><code>σ<sub>{k}</sub>(x) = {escape(formula)}</code></li>"
        for k, formula in enumerate(content["formulas"], 1)
    )
    verdict = "The match is exact" if content["exact"] else "The match is the best in its family, but not exact"
    target, achieved = content["coefficients"]["target"], content["coefficients"]["achieved"]
    sections = [
        "<h1>An implicit network and its explicit equivalent</h1>",
        f"<p><code>{escape(content['text'])}</code><br>{escape(content['well_posed']['reason'])}</p>",
        f"<h2>The explicit network</h2><ol>{layers}</ol>",
        f"<p>{verdict} (residual {content['residual']:.1e}).</p>",
        _table(
            (f"{content['kind']} coefficient", "implicit", "explicit"),
            [(key, f"{target[key]:.10g}", f"{achieved[key]:.10g}") for key in target],
        ),
        f"<h2>How close they are</h2><p>Relative distance of the kernels in spectral norm on {escape(facts['name'])} "
        f"({facts['samples']} samples, {facts['features']} features).</p>",
        _table(
            ("explicit network", "as it is", "best rescaled"),
            [
                (row["network"], f"{100 * row['error']:.3g} %", f"{100 * row['rescaled_error']:.3g} %")
                for row in content["closeness"]
            ],
        ),
        *(_comparison(content["comparison"]) if content.get("comparison") else ()),
        *(_figure(folder / f"{name}.png", _CAPTIONS[name]) for name in pictures),
        "<h2>Use it</h2><pre>import notsodeep as nsd\n\n"
        'network = nsd.load_model("network.json")\n'
        "K = network.kernel(X)  # X: centred, scaled to mean ‖x‖² = 1</pre>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>notsodeep match</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def _comparison(comparison: Mapping[str, Any]) -> list[str]:
    rows = comparison["rows"]
    keys = [key for key in rows[0] if key != "network"]
    return [
        f"<h2>Trained</h2><p>{escape(comparison['setting'])}</p>",
        _table(("", *(row["network"] for row in rows)), [(key, *(str(row[key]) for row in rows)) for key in keys]),
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    title = path.stem.capitalize()
    return f'<h2>{title}</h2><p>{caption}</p><img alt="{title}" src="data:image/png;base64,{data}">'
