"""``notsodeep bench``: run the benchmarks of BENCHMARKS.md again."""

from __future__ import annotations

import ast
import json as json_module
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.commands.console import emit, say, table
from notsodeep.commands.options import Json, flag
from notsodeep.errors import InputError, nearest


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Benchmarks or areas; all of them when absent.")
    ] = None,
    quick: Annotated[bool, flag("--quick", help="Small sizes; the stored results stay as they are.")] = False,
    list_: Annotated[bool, flag("--list", help="List the benchmarks and stop.")] = False,
    json: Json = False,
) -> None:
    """Run the benchmarks of a checkout, one process each, and rewrite BENCHMARKS.md."""
    folder = _folder()
    areas = {path.stem: area for path in sorted(folder.glob("*.py")) if (area := _area(path)) is not None}
    chosen = _choose(names or [], areas, folder)
    if list_:
        if json:
            emit([{"name": name, "area": areas[name]} for name in chosen])
        else:
            say(table("benchmarks", ("name", "area"), [(name, areas[name]) for name in chosen]))
        return
    results = [_run(folder / f"{name}.py", quick) for name in chosen]
    if not quick and (folder / "write.py").is_file():
        _python(folder / "write.py", check=True, stdout=sys.stderr)
    if json:
        emit(results)
    else:
        say(table("benchmarks", ("name", "verdict"), [(r["name"], r["verdict"]) for r in results]))


def _folder() -> Path:
    """``benchmarks/`` beside the package's sources, or below the current directory."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / "benchmarks" / "common.py").is_file():
            return root / "benchmarks"
    raise InputError("no benchmarks here: they are part of the source checkout; clone it and run `make bench`")


def _area(path: Path) -> str | None:
    """The ``AREA = "..."`` of a benchmark, read without running it; None for a script without ``run``."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in body):
        return None
    constants = {
        ast.unparse(node.targets[0]): node.value.value
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    return str(constants.get("AREA", ""))


def _choose(names: list[str], areas: dict[str, str], folder: Path) -> list[str]:
    options = sorted({*areas, *areas.values()} - {""})
    former = folder / "former_names.json"
    renamed = json_module.loads(former.read_text(encoding="utf-8")) if former.is_file() else {}
    for name in names:
        if name in renamed:
            raise InputError(f"names={name!r} is now called {renamed[name]!r}")
        if name not in options:
            raise InputError(f"names={name!r} is not a benchmark{nearest(name, options)} (see notsodeep bench --list)")
    return [name for name, area in areas.items() if not names or name in names or area in names]


def _run(script: Path, quick: bool) -> dict[str, Any]:
    """Run one script in its own process; its last line on stdout is its result."""
    options = ["--quick"] if quick else []
    finished = _python(script, *options, stdout=subprocess.PIPE, cwd=script.parents[1], check=False)
    if finished.returncode:
        raise InputError(f"benchmark {script.stem} failed with exit code {finished.returncode}; its messages are above")
    return dict(json_module.loads(finished.stdout.strip().splitlines()[-1]))


def _python(*arguments: str | Path, check: bool, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script with UTF-8 input and output, whatever the encoding of the console."""
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, encoding="utf-8", env=environment, check=check, **options)
