"""``notsodeep bench``: run the benchmarks of BENCHMARKS.md again, and compare them with an earlier run."""

from __future__ import annotations

import ast
import itertools
import json as json_module
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.commands.console import emit, number, say, table
from notsodeep.commands.options import Json, flag
from notsodeep.errors import InputError, nearest
from notsodeep.text import listed

_NOISE = 1.1  # smaller changes are not reported


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Benchmarks or areas; all of them when absent.")
    ] = None,
    quick: Annotated[bool, flag("--quick", help="Small sizes; the stored results stay as they are.")] = False,
    list_: Annotated[bool, flag("--list", help="List the benchmarks and stop.")] = False,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="OLD.json", help="Run those of an earlier `bench --json` again; show what got slower."),
    ] = None,
    json: Json = False,
) -> None:
    """Run the benchmarks of a checkout, one process each, and rewrite BENCHMARKS.md."""
    folder = _folder()
    constants = {path.stem: found for path in sorted(folder.glob("*.py")) if (found := _constants(path)) is not None}
    areas = {name: str(found.get("AREA", "")) for name, found in constants.items()}
    old = {} if compare is None else _earlier(compare)
    known = [name for name in old if name in areas]
    if old and not names and not known:
        raise InputError(f"compare={str(compare)!r} names no benchmark of this checkout (it has {listed(old)})")
    chosen = _choose(names or known, areas, folder)
    if list_:
        if json:
            emit([{"name": name, "area": areas[name]} for name in chosen])
        else:
            say(table("benchmarks", ("name", "area"), [(name, areas[name]) for name in chosen]))
        return
    results = [_run(folder / f"{name}.py", quick) for name in chosen]
    if not quick and (folder / "write.py").is_file():
        _python(folder / "write.py", check=True, stdout=sys.stderr)
    slow = [row for new in results for row in slower(old.get(new["name"], {}), new, constants[new["name"]])]
    if json:
        emit({"results": results, "slower": slow} if compare else results)
        return
    say(table("benchmarks", ("name", "verdict"), [(r["name"], r["verdict"]) for r in results]))
    if slow:
        rows = [(r["name"], r["row"], r["column"], number(r["before"]), number(r["now"])) for r in slow]
        say(table(f"slower than in {compare}", ("name", "row", "column", "before", "now"), rows))
    elif compare:
        say(f"nothing is more than {_NOISE} times slower than in {compare}")


def slower(old: Mapping[str, Any], new: Mapping[str, Any], constants: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Entries of a benchmark's table that are worse than before by more than noise.

    Rows belong together if they begin with the same settings. A script names the columns to compare: ``COSTS``, where
    less is better, and ``GAINS``. Without them columns of seconds are compared.
    """
    costs, gains = constants.get("COSTS", ()), constants.get("GAINS", ())
    before = {_settings(row): row for row in old.get("rows", [])}
    found = []
    for row in new["rows"]:
        earlier = before.get(_settings(row), {})
        for column in row.keys() & earlier.keys():
            is_cost = column in costs or (not costs and not gains and column.endswith((" s", " ms")))
            pair = earlier[column], row[column]
            if not (is_cost or column in gains) or not all(isinstance(x, int | float) and x > 0 for x in pair):
                continue
            if max(pair) > _NOISE * min(pair) and (pair[1] > pair[0]) == is_cost:
                labels = " ".join(str(value) for _, value in _settings(row))
                entry = {"name": new["name"], "row": labels, "column": column, "before": pair[0], "now": pair[1]}
                found.append(entry)
    return sorted(found, key=lambda entry: (entry["row"], entry["column"]))


def _settings(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The columns before the first measured one, a float."""
    return tuple(itertools.takewhile(lambda item: not isinstance(item[1], float), row.items()))


def _earlier(path: Path) -> dict[str, Mapping[str, Any]]:
    """Results by name, from what ``bench --json`` printed or from one file of ``benchmarks/results``."""
    from notsodeep.reading import json_file  # imports NumPy

    try:
        content = json_file(path)
        results = content.get("results", [content]) if isinstance(content, dict) else content
        found = {result["name"]: result for result in results}
        if not found:
            raise ValueError("it holds no results")
        if not all(_is_row(row) for result in found.values() for row in result["rows"]):
            raise ValueError("a row is not an object of numbers and text")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"compare={str(path)!r} is not a result of `notsodeep bench --json` ({error})") from error
    return found


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and all(isinstance(value, str | int | float | None) for value in row.values())


def _folder() -> Path:
    """``benchmarks/`` beside the package's sources, or below the current directory."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / "benchmarks" / "common.py").is_file():
            return root / "benchmarks"
    raise InputError("no benchmarks here: they are part of the source checkout; clone it and run `make bench`")


def _constants(path: Path) -> dict[str, Any] | None:
    """``AREA``, ``COSTS`` and ``GAINS`` of a benchmark, read without running it; None for a script without ``run``."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in body):
        return None
    return {
        name: ast.literal_eval(node.value)
        for node in body
        if isinstance(node, ast.Assign) and (name := ast.unparse(node.targets[0])) in ("AREA", "COSTS", "GAINS")
    }


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
