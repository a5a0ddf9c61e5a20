"""The files of a replacement: the network in two formats, the table, and a page."""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from notsodeep import files
from notsodeep.checks import InputError
from notsodeep.errors import warn_ignored
from notsodeep.extras import need
from notsodeep.nn.export import WEIGHTS, packed, save
from notsodeep.nn.observation import looks_up, zeros_for
from notsodeep.nn.onnx_graph import export_onnx
from notsodeep.nn.replacement import Replacement, table_text
from notsodeep.nn.sequential import described_layers
from notsodeep.report.folder import new_report
from notsodeep.report.live import from_matplotlib, tell
from notsodeep.report.page import Code, Facts, Part, Plot, Prose, Row, Section, Table, plain, render
from notsodeep.report.style import COLORS, style
from notsodeep.study.training import STEADY

__all__ = ["SavedReplacement", "write_replacement"]

_FILES = ("replacement.json", "network.safetensors", "network.onnx", "index.html", "network.pt2")
_COLORS = {"designed": "explicit", "plain": "other", "cell": "theory", "module": "implicit"}
_WORDS = {"designed": "designed", "plain": "plain", "cell": "steps of the cell", "module": "the module"}


@dataclass(frozen=True)
class SavedReplacement:
    """Paths of the files; None for those that this network does not have."""

    page: Path
    table: Path
    weights: Path
    onnx: Path | None
    program: Path | None


def write_replacement(found: Replacement, directory: str | Path) -> SavedReplacement:
    """Write everything into a directory; see :meth:`notsodeep.nn.Replacement.save`."""
    need("matplotlib"), need("plotly"), need("onnx")  # a missing extra is reported before the work
    folder = Path(directory)
    with new_report(folder, "replacement.json", _FILES, "directory") as fresh:
        rebuilt = described_layers(found.network) is not None
        if rebuilt:
            save(found.network, fresh / "network.safetensors")
        else:  # steps of a cell: generated code, which no file of ours may hold
            weights = packed(found.network.state_dict(), WEIGHTS, {"name": found.name})
            files.write(fresh / "network.safetensors", weights)
            files.write(fresh / "network.pt2", _program(found))
        dtype = str(next(found.network.parameters()).dtype).removeprefix("torch.")
        try:
            export_onnx(found.network, fresh / "network.onnx", shape=found.sample_shape, dtype=dtype)
        except InputError as error:
            (fresh / "network.onnx").unlink(missing_ok=True)
            warn_ignored(f"no network.onnx was written: {error}")
        kept = {path.name for path in fresh.iterdir()}
        content = {
            "name": found.name,
            "reached": found.reached,
            "task": found.task,
            "limits": found.limits,
            "samples": found.samples,
            "verdict": list(found.verdict),
            "table": found.table,
        }
        files.write(fresh / "replacement.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        files.write(fresh / "index.html", _page(found, folder, kept))
    optional = [folder / name if name in kept else None for name in ("network.onnx", "network.pt2")]
    return SavedReplacement(
        folder / "index.html", folder / "replacement.json", folder / "network.safetensors", *optional
    )


def _program(found: Replacement) -> bytes:
    """The network as ``torch.export`` writes it, for batches of any size."""
    rows = zeros_for(found.network, found.sample_shape)
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(found.network, (rows,), dynamic_shapes=({0: batch},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _page(found: Replacement, folder: Path, kept: Collection[str]) -> str:
    chosen, module = found.chosen, found.table[0]
    classes = found.task == "classes"
    facts = [
        (f"{100 * found.agreement:.2f} %", "agreement with the module" if classes else "of the variance explained")
    ]
    if max(module["time spread"], chosen["time spread"]) <= STEADY:  # times of a busy machine are not headlines
        one, many = (module[key] / chosen[key] for key in ("ms, batch 1", "ms, large batch"))
        facts += [(f"{one:.1f}×", "faster on one row"), (f"{many:.1f}×", f"faster on {chosen['large batch']} rows")]
    if classes and chosen["accuracy"] is not None:
        pair = f"{100 * module['accuracy']:.2f} → {100 * chosen['accuracy']:.2f} %"
        facts.append((pair, "accuracy, module → network"))
    columns, rows = table_text(found.table)
    for line, row in zip(rows, found.table, strict=True):
        line[0] = f"**{plain(line[0])}**" if row["network"] == found.name else plain(line[0])
    first = (
        "Agreement is the share of rows on which the largest output is the same; KL and error compare all outputs. "
        if classes
        else "Agreement is the explained share of the variance of the module's outputs. "
    )
    mixed = "" if looks_up(found.network) else " and from mixtures of them"
    text = first + (
        f"All candidates learned from {found.samples['learned from']} rows{mixed}, with the same "
        f"number of steps; all figures are from {found.samples['measured on']} other rows. The time is relative to the "
        "module, the worse of both batch sizes, the best of interleaved rounds; the spread says by how much the median "
        "round is longer."
    )
    sections = [
        Section("Verdict", [Prose("\n\n".join(map(plain, found.verdict)))]),
        Section("All candidates", [Prose(text), Row([_plot(found)]), Table(columns, rows)]),
        Section("Use it", [Prose("Nothing of notsodeep is in the network."), Code(_snippet(found, folder, kept))]),
    ]
    lead: list[Part] = [Prose(f"**{plain(found.name)}** in place of the module."), Facts(facts)]
    return render("What replaces the module", sections, lead)


def _plot(found: Replacement) -> Plot:
    with style() as plt:
        figure, axis = plt.subplots()
        for family, tint in _COLORS.items():
            rows = [row for row in found.table if row["family"] == family]
            (dots,) = axis.plot(*_places(rows), "o", ms=7.5, color=COLORS[tint], label=_WORDS[family])
            names = [row["network"] for row in rows]
            tell(dots, hover="%{hovertext}<br>%{y:.2f} %, time %{x:.3f}", text=names)
        ring = {"color": COLORS["ink"], "mfc": COLORS["paper"], "mew": 2, "zorder": 1}
        axis.plot(*_places([found.chosen]), "o", ms=13, label="chosen", **ring)
        axis.axvline(found.limits["max_time_ratio"], color=COLORS["muted"], ls=":", lw=1)
        axis.set(xscale="log", xlabel="time relative to the module", ylabel="agreement [%]")
        axis.set(title="Agreement against time")
        alt = "Agreement of every candidate with the module against its time relative to the module"
        caption = "The dotted line is the limit on the time; the circle marks the network that was chosen."
        tell(axis, alt=alt, caption=caption, height=420)
        return from_matplotlib(figure)[0]


def _places(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [row["time ratio"] for row in rows], [100 * row["agreement"] for row in rows]


def _snippet(found: Replacement, folder: Path, kept: Collection[str]) -> str:
    shape = ", ".join(map(str, found.sample_shape))
    weights, graph, program = (json.dumps(str(folder / name), ensure_ascii=False) for name in _FILES[1:3] + _FILES[4:])
    kind = str(zeros_for(found.network, found.sample_shape).dtype)
    if "network.pt2" in kept:
        loading = ["import torch", f"network = torch.export.load({program}).module()"]
    else:
        loading = ["from notsodeep import nn", f"network = nn.load({weights})  # a torch.nn.Sequential"]
    running = [
        *("", "import numpy as np", "import onnxruntime"),
        f"session = onnxruntime.InferenceSession({graph})",
        f'outputs = session.run(None, {{"x": np.zeros((1, {shape}), dtype="{kind.removeprefix("torch.")}")}})[0]',
    ]
    return "\n".join([*loading, *(running if "network.onnx" in kept else []), ""])
