"""Shared by all commands: printing of text and JSON, progress, output files."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from notsodeep import files
from notsodeep.errors import InputError, choice
from notsodeep.progress import Reporter, reporter
from notsodeep.text import printable, spelt

if TYPE_CHECKING:
    from rich.console import Console, Group


class Command(TyperCommand):
    """A command whose help lists the options in groups: those of the command, of the model, of the data."""

    def get_help(self, ctx: Any) -> str:
        return spelt(super().get_help(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            title = getattr(parameter, "rich_help_panel", None) or "Options"
            if parameter.param_type_name == "argument":  # the same in all versions of typer
                title, record = "Arguments", (parameter.metavar or str(parameter.name).upper(), record[1])
            names = re.sub(r"<(\w+)>|\b(TEXT|PATH|FLOAT|INTEGER)\b", _metavar, record[0])
            groups.setdefault(title, []).append((names, record[1]))
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _metavar(found: re.Match[str]) -> str:
    """What a reader calls a value: typer names its type, in a way that depends on the version."""
    kind = (found[1] or found[2]).lower()
    return {"str": "TEXT", "int": "NUMBER", "integer": "NUMBER", "float": "NUMBER"}.get(kind, kind.upper())


class Commands(TyperGroup):
    """A group of commands; the error for a misspelt one suggests the nearest."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False  # for None typer imports pydantic, which takes as long as all the rest of a help
        return option

    def get_help(self, ctx: Any) -> str:
        return spelt(super().get_help(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-"):
            choice(args[0], self.commands, "command")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, inspect.cleandoc(one.help or "").split("\n\n")[0]) for name, one in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def terminal(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: ``[/x].zarr`` and ``:key:.npy`` are file names, not markup."""
    from rich.console import Console  # slow to import

    # a pipe has no width of its own; 120 columns keep tables in one piece
    width = None if stderr or sys.stdout.isatty() else 120
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def say(*content: Any) -> None:
    """Print text or tables for readers; text is not wrapped, so that it can be copied."""
    console = terminal()
    for part in content or ("",):
        safe = printable(part, keep="\n") if isinstance(part, str) else part
        console.print(safe, soft_wrap=isinstance(part, str))


def say_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print labelled texts, wrapped."""
    for label, text in lines:
        say(*wrapped(label, text))


def wrapped(label: str | None, text: str, width: int = 80, margin: int = 11) -> list[str]:
    """Wrap text to `width` columns after a label, with a hanging indent, or without both.

    Examples
    --------
    >>> from notsodeep.commands.console import wrapped
    >>> wrapped("match", "exact in all four numbers", width=30)
    ['match      exact in all four', '           numbers']
    """
    indent = "" if label is None else margin * " "
    return textwrap.wrap(
        text,
        width,
        initial_indent="" if label is None else f"{label:<{margin}}",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrapped_reason(label: str | None, reason: str) -> list[str]:
    """A verdict of well-posedness, one line for each of its conditions.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> from notsodeep.commands.console import wrapped_reason
    >>> print(*wrapped_reason(None, nsd.DEQ("relu", 0.2, 0.8).well_posed.reason), sep="\\n")
    well-posed at finite and infinite width:
    4·recurrent·L² = 0.8 < 1 (margin +0.2)
    recurrent·sup E[φ'²] = 0.1 < 1 (margin +0.9)
    """
    head, conditions = reason.split(": ", 1)
    indent = None if label is None else ""
    rest = [line for condition in conditions.split("; ") for line in wrapped(indent, condition)]
    return [*wrapped(label, f"{head}:"), *rest]


def emit(content: Any) -> None:
    """Print one JSON document; NaN and infinity, which JSON does not have, become null."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(_finite(content), indent=2, ensure_ascii=plain, allow_nan=False)
    if not text.replace("\n", "").isprintable():  # JSON escapes only some of the characters that control a terminal
        text = "".join(one if printable(one, keep="\n") == one else json.dumps(one)[1:-1] for one in text)
    sys.stdout.write(text + "\n")


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def number(value: float) -> str:
    """Six significant digits."""
    return f"{value:.6g}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], limit: int | None = None) -> Group:
    """Return a table with text in its first column and numbers in the others; rows above `limit` are counted."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    result = Table(header_style="bold")
    for k, column in enumerate(columns):
        result.add_column(Text(printable(column)), justify="left" if k == 0 else "right")
    for row in rows[:limit]:
        result.add_row(*(Text(printable(cell)) for cell in row))  # a label may look like markup
    left = 0 if limit is None else len(rows) - limit
    more = [Text(f"… {left} more")] if left > 0 else []
    return Group(Text(printable(title, keep="\n"), style="bold"), result, *more)


def progress(description: str, *, quiet: bool = False) -> AbstractContextManager[Reporter]:
    """Show a bar on a terminal's stderr at once, and nothing anywhere else."""
    return reporter(description, progress=False if quiet else None, patience=0.0)


def new_file(path: Path, *, force: bool = False) -> None:
    """Refuse, before the work, a file that cannot be written or exists already."""
    if os.path.lexists(files.writable(path, "out")) and not force:
        raise InputError(f"out={str(path)!r} exists already; pass --force to replace it")
