"""``notsodeep``: the command line."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer

from notsodeep import __version__, interrupt
from notsodeep.commands import bench, data, explore, fit, forecast, kernel, match, predict, reproduce, show, train
from notsodeep.commands.console import Command, Commands, terminal
from notsodeep.commands.options import flag
from notsodeep.errors import InputError, MissingExtraError, NotConvergedError
from notsodeep.text import printable, speak_plainly

__all__ = ["app", "main"]

_LONGEST = 2000  # longest error message
_INTERNAL = re.compile(r"\s*\(Triggered internally at [^)]*\)|(?:[A-Za-z]:)?[/\\]\S*site-packages[/\\]\S*?:\d+:\s*")

app = typer.Typer(
    name="notsodeep",
    cls=Commands,
    help="Exact kernels of deep equilibrium models, and the shallow explicit networks that replace them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: Rich's takes longer to import than everything else
    pretty_exceptions_enable=False,
)
_COMMANDS: tuple[Callable[..., None], ...] = (
    *(match.match, show.show, forecast.forecast, kernel.kernel, kernel.verify, train.train),
    *(fit.fit, predict.predict, explore.explore, reproduce.reproduce, bench.bench),
)
for _command in _COMMANDS:
    app.command(cls=Command)(_command)
app.add_typer(data.app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    # a plain bool: for any other type typer imports pydantic
    version: Annotated[bool, flag("--version", callback=_print_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; errors that the user can fix become one line on stderr and exit code 2."""
    try:
        speak_plainly()
        warnings.formatwarning = _warning
        status: Any = app(args=arguments, prog_name="notsodeep", standalone_mode=False)
    except (InputError, MissingExtraError, NotConvergedError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted", interrupt.STATUS)
    except MemoryError as error:
        _fail(f"not enough memory; use fewer samples, or --out K.zarr for a large kernel ({error})")
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        # a misused option: typer's exception classes moved between versions, this method did not
        if not hasattr(error, "format_message"):
            raise
        _fail(_misused(error, sys.argv[1:] if arguments is None else arguments))
    if status == interrupt.STATUS:
        _fail("interrupted", status)
    sys.exit(status if isinstance(status, int) else 0)


def _misused(error: Any, words: Sequence[str]) -> str:
    """The message of typer, whose wording varies; our own if the value of an option is not a number."""
    message = str(error.format_message())
    kinds = {"integer": "a whole number", "number": "a number", "float": "a number"}
    kind = next((kinds[word] for word in kinds if word in message), None)
    for name, value in pairwise(part for word in words for part in word.split("=", 1)):
        if kind and name in getattr(getattr(error, "param", None), "opts", ()):
            return f"{name.lstrip('-')}={value!r} must be {kind}"
    wanted = getattr(getattr(error, "param", None), "help", None)
    if message.startswith("Missing ") and wanted:
        return f"{message.rstrip('.')}: {wanted}"
    return message


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    text = _INTERNAL.sub("", " ".join(str(message).split()))
    return f"warning: {printable(text)}\n"


def _fail(message: str, status: int = 2) -> None:
    """One line; a terminal breaks it between words."""
    console = terminal(stderr=True)
    line = printable(" ".join(message.split()))
    shown = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"  # of a value that fills a file
    console.print(f"error: {shown}", soft_wrap=not console.is_terminal)
    sys.exit(status)
