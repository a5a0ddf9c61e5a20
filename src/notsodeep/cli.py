"""``notsodeep``: the command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from notsodeep import __version__
from notsodeep.checks import InputError, MissingExtraError, NotConvergedError
from notsodeep.commands import bench, data, fit, forecast, kernel, match, predict, reproduce, show, train
from notsodeep.commands.console import Commands

__all__ = ["app", "main"]

app = typer.Typer(
    name="notsodeep",
    cls=Commands,
    help="Exact kernels of deep equilibrium models, and the shallow explicit networks that replace them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("match")(match.match)
app.command("show")(show.show)
app.command("forecast")(forecast.forecast)
app.command("kernel")(kernel.kernel)
app.command("verify")(kernel.verify)
app.command("train")(train.train)
app.command("fit")(fit.fit)
app.command("predict")(predict.predict)
app.add_typer(data.app, name="data")
app.command("reproduce")(reproduce.reproduce)
app.command("bench")(bench.bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; whatever the user can mend becomes one line on stderr and exit code 2."""
    try:
        status: Any = app(args=arguments, prog_name="notsodeep", standalone_mode=False)
    except (InputError, MissingExtraError, NotConvergedError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted", 128 + signal.SIGINT)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        # a misused option: typer's exception classes moved between its versions, this method did not
        if not hasattr(error, "format_message"):
            raise
        _fail(error.format_message())
    if status == 128 + signal.SIGINT:
        _fail("interrupted", status)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int = 2) -> None:
    """One line; a terminal breaks it between words."""
    console = Console(stderr=True)
    console.print(
        "error: " + " ".join(message.split()), soft_wrap=not console.is_terminal, markup=False, highlight=False
    )
    sys.exit(status)
