"""The core needs none of the extras, and says in one line which extra is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

# a fresh interpreter in which the optional dependencies cannot be imported
BLOCK = """
import sys
EXTRAS = "torch dask distributed zarr filelock google_crc32c matplotlib plotly onnx onnxruntime".split()
EXTRAS += ["gpytorch", "botorch", "safetensors", "pandas", "pyarrow", "PIL"]
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, check=False)


CORE = """
import numpy as np
import notsodeep as nsd
deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
X = np.random.default_rng(0).normal(size=(20, 30)) / 30**0.5
assert deq.kernel(X, kind="ntk").shape == (20, 20)
m = nsd.match(deq, tau0=1.0)
assert m.exact
nsd.equivalent(deq, X, nsd.estimate_statistics(X), kind="ck").dense()
print("fine")
"""


def test_the_core_works_without_extras() -> None:
    result = run(CORE)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "fine\n"


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from notsodeep import nn; nn.DEQNet", "nn"),
        ("import notsodeep.gp; notsodeep.gp.SklearnDEQKernel; notsodeep.gp.GPyTorchDEQKernel", "nn"),
        ("import notsodeep as nsd; nsd.DEQ('relu', 0.2, 0.8).kernel([[1.0]], out='/nowhere.zarr')", "scale"),
        (
            "import tempfile; from notsodeep.data import load; f = tempfile.NamedTemporaryFile(suffix='.parquet'); "
            "load(f.name)",
            "data",
        ),
        ("from notsodeep.data.formats import png; png(b'', 'a.png')", "data"),
        ("import notsodeep as nsd; nsd.match(nsd.DEQ('relu', 0.2, 0.8), tau0=1.0).report('/nowhere')", "report"),
        ("from notsodeep.report import pictures; pictures.draw(None, None, None)", "report"),
        ("from notsodeep.report.page import *; render('t', [Section('s', [Plot({}, alt='')])])", "report"),
    ],
)
def test_a_missing_extra_is_named(code: str, extra: str) -> None:
    result = run(f"""
from notsodeep import MissingExtraError
try:
    exec({code!r})
except MissingExtraError as error:
    print(error)
""")
    assert result.returncode == 0, result.stderr
    assert f'pip install "notsodeep[{extra}]"' in result.stdout
    assert len(result.stdout.splitlines()) == 1


def test_match_runs_without_extras_until_a_report_is_asked_for(tmp_path: object) -> None:
    start = "from notsodeep.cli import main\n"
    result = run(start + "main(['match', '--json'])")
    assert result.returncode == 0, result.stderr
    result = run(start + f"main(['match', '--report', {str(tmp_path) + '/report'!r}])")
    assert result.returncode == 2
    assert result.stderr.startswith("error: pages and pictures need matplotlib")
    assert len(result.stderr.splitlines()) == 1
