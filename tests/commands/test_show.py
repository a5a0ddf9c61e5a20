"""``notsodeep show``."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import Run

import notsodeep as nsd


def test_show(run: Run, tmp_path: Path) -> None:
    path = nsd.DEQ("tanh", 0.3, 0.8).save(tmp_path / "deq.json")
    result = run("show", path)
    assert "DEQ(tanh(x), recurrent=0.3, input=0.8, bias=0)" in result.out
    assert "a finite network may have no unique equilibrium" in " ".join(result.out.split())
    assert run("show", path, "--json").json["well_posed"] is False
