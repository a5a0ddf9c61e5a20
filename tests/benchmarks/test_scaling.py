"""The page on scaling: written from results, its code runs, and the benchmarks behind it run."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from notsodeep.cli import main

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("benchmarks")
RATES = {"compute": 0.1, "diagonal": 0.07, "write": 0.02, "read": 0.01, "multiply": 0.005, "update": 0.2, "solve": 0.3}
MEASURED = {
    "question": "c.",
    "target": "t",
    "verdict": "met: well",
    "rows": [{"n": 10, "predicted s": 1.0, "measured s": 1.1}],
    "rates": {"float32": RATES, "float64": RATES},
    "tile": 2000,
    "features": 784,
    "columns": 10,
    "threads": 2,
}


def test_the_page_is_what_the_results_say() -> None:
    page = importlib.import_module("docs.scaling")
    assert (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8") == page.render(page.stored())


def test_predictions_follow_the_rates() -> None:
    page, model = importlib.import_module("docs.scaling"), importlib.import_module("scaling_model_against_measured")
    # 50 tiles a side: 1225 above the diagonal and 50 on it
    kernel = 1225 * 0.12 + 50 * 0.09
    assert model.predict("kernel", 100_000, 2000, RATES, 1) == pytest.approx(kernel)
    assert model.predict("kernel", 100_000, 2000, RATES, 16) == pytest.approx(kernel / 16)
    assert model.predict("product", 100_000, 2000, RATES, 1) == pytest.approx(1225 * 0.105 + 50 * 0.0725)
    factor = kernel + sum(j * (50 - j) for j in range(50)) * 0.21 + 1225 * 0.3  # updates and solves, column by column
    assert model.predict("factor", 100_000, 2000, RATES, 1) == pytest.approx(factor)
    text = page.render(
        {
            "scaling_model_against_measured": MEASURED,
            "random_features_against_exact_kernel": {**MEASURED, "question": "Later."},
        }
    )
    assert "| 100,000 | 1 | 0.0421 | 20 |" in text
    assert "| 1,000,000 | 256 |" in text
    assert "`DEQFeatures`" in text
    assert "Not measured yet" in page.render({})


def test_the_code_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "scaling.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out.endswith("True cg\n")
    (shell,) = re.findall(r"```\n(notsodeep .*?)```", page, flags=re.DOTALL)
    ends = []
    for line in shell.splitlines():
        with pytest.raises(SystemExit) as ended:
            main(line.split()[1:])
        assert not ended.value.code, line
        ends.append(capsys.readouterr().out.splitlines()[-1])
    assert ends[0] == "tiles: 1 of 1 there already, nothing left to compute"
    assert ends[1] == "tiles: 0 of 1 there already, 1 computed"
    assert ends[2].endswith("all 1 tiles are there and sound")
    (shown,) = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    assert "client=client" in shown  # needs a cluster; tests/scale/test_distributed.py runs one


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["on_disk_against_in_memory", "two_workers_against_one", "scaling_model_against_measured"]
)
def test_benchmark_runs(name: str) -> None:
    result: dict[str, Any] = importlib.import_module(name).run(quick=True)
    assert {"question", "target", "rows", "verdict"} <= set(result)
    assert all(row.keys() == result["rows"][0].keys() for row in result["rows"])
