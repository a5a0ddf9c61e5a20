"""Without PyTorch the import fails with the one line that mends it; the documented code runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "training.md"


def test_a_missing_torch_is_one_clear_line():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    import notsodeep.nn\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError")
    assert 'pip install "notsodeep[nn]"' in done.stdout


def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(block, scope)
    printed = capsys.readouterr().out
    assert "Condition 1 holds" in printed
    assert "loss below the bound: yes" in printed
