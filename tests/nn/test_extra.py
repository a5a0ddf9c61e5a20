"""Without PyTorch the import fails with the one line that mends it."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_missing_torch_is_one_clear_line():
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError('No module named torch', name='torch')\n"
        "sys.meta_path.insert(0, Block())\n"
        "try:\n    import notsodeep.nn\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError")
    assert 'pip install "notsodeep[nn]"' in done.stdout
