"""``notsodeep explore``: a local page with knobs."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from notsodeep.commands.console import say
from notsodeep.commands.options import flag
from notsodeep.errors import InputError


def explore(
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.", metavar="PORT")] = 0,
    browser: Annotated[bool, flag("--browser/--no-browser", help="Open the page in your browser.")] = True,
) -> None:
    """Open a page where you turn the knobs of a model and see its kernel, its networks, spectra and your data.

    The server listens on this machine only, and its address holds a random token. It ends with Ctrl-C.
    """
    if not 0 <= port < 65536:
        raise InputError(f"port={port} must lie between 0 and 65535")
    from notsodeep.explore import serve

    def tell(address: str) -> None:
        say(f"explore    {address}", "           end it with Ctrl-C")
        if browser:
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    serve(port, tell=tell)
