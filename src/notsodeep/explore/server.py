"""The server of the page: on this machine only, behind a random token, answering its own page and nobody else."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep import __version__
from notsodeep.checks import InputError
from notsodeep.data import NAMES, Data, load
from notsodeep.explore import answers
from notsodeep.explore.answers import ACTIVATIONS, Knobs
from notsodeep.extras import need
from notsodeep.files import scratch, write
from notsodeep.kinds import Kind
from notsodeep.report.page import theme_rules
from notsodeep.threads import single_threaded_blas

__all__ = ["application", "serve"]

_HOST = "127.0.0.1"
_QUESTION = 64 * 1024  # bytes of a question
_FILE = 64 * 1024 * 1024  # bytes of a file of data
_PATIENCE = 120.0  # seconds for an answer; a thread cannot be stopped, but nobody waits for it any longer
_ENDINGS = (".csv", ".npz", ".npy", ".parquet")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_PARTS = {
    "page.js": "text/javascript",
    "page.css": "text/css",
}


class _Latest:
    """Slow answers one at a time: a question that has been overtaken while it waited is not computed."""

    def __init__(self) -> None:
        self._turn, self._newest = threading.Lock(), 0

    def __call__(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        self._newest = mine = self._newest + 1
        with self._turn:
            return work() if mine == self._newest else None


def application(token: str, port: int) -> Any:
    """The ASGI application; every address begins with the token.

    Parameters
    ----------
    token : str
    port : int
        The port of the addresses that may ask: ``http://127.0.0.1:port`` and ``http://localhost:port``.
    """
    need("starlette.applications")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def computed(work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of slow work in a thread, with one thread of BLAS: two wait for each other on small matrices."""

        def work_alone() -> Any:
            with single_threaded_blas():
                return work(*arguments)

        task = asyncio.ensure_future(run_in_threadpool(work_alone))
        if task not in (await asyncio.wait({task}, timeout=_PATIENCE))[0]:
            task.add_done_callback(lambda late: late.exception())
            raise InputError(f"the answer takes more than {_PATIENCE:g} seconds; choose other values")
        return task.result()

    uploaded: dict[str, Data] = {}
    slow = {"exact": _Latest(), "kinks": _Latest()}
    hosts = {f"{name}:{port}" for name in (_HOST, "localhost")}

    def refusal(request: Request) -> str | None:
        if request.headers.get("host") not in hosts:
            return "this address is not served here"
        origin = request.headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return "only the page itself may ask"
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "only the page itself may ask"
        if not hmac.compare_digest(request.path_params["token"].encode(), token.encode()):
            return "the token is wrong; use the address that `notsodeep explore` printed"
        return None

    def guarded(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            if (reason := refusal(request)) is not None:
                return PlainTextResponse(reason, 403, _HEADERS)
            try:
                found = await answer(request)
            except InputError as error:
                found = JSONResponse({"error": str(error)}, 400)
            except (ArithmeticError, np.linalg.LinAlgError):
                found = JSONResponse({"error": "these values leave no digits; choose others"}, 400)
            except MemoryError:
                found = JSONResponse({"error": "not enough memory; use less data"}, 400)
            response = found if isinstance(found, Response) else JSONResponse(found)
            response.headers.update(_HEADERS)
            return response

        return respond

    async def body(request: Request, most: int) -> bytes:
        content = bytearray()
        async for piece in request.stream():
            content += piece
            if len(content) > most:
                raise InputError(f"the request is larger than {most // 1024} KiB")
        return bytes(content)

    async def question(request: Request) -> dict[str, Any]:
        try:
            asked = json.loads(await body(request, _QUESTION))
        except (ValueError, RecursionError):
            raise InputError("the request is not JSON") from None
        if not isinstance(asked, dict):
            raise InputError("the request must hold one JSON object")
        return asked

    async def page(request: Request) -> Response:
        return Response(_page(), media_type="text/html")

    async def part(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "plotly.js":
            return Response(need("plotly.offline").get_plotlyjs(), media_type="text/javascript")
        if name not in _PARTS:
            return PlainTextResponse("there is no such part", 404)
        return Response(_styles() if name == "page.css" else _asset(name), media_type=_PARTS[name])

    async def ask(request: Request) -> Any:
        asked, topic = await question(request), request.path_params["topic"]
        if topic in answers.TOPICS:
            return await computed(answers.TOPICS[topic], Knobs.of(asked))
        if topic in slow:
            knobs = Knobs.of(asked)
            found = await computed(slow[topic], lambda: answers.one_layer(knobs, kinks=topic == "kinks"))
            return {"overtaken": True} if found is None else found
        if topic == "data":
            source, normalize = str(asked.pop("source", "digits")), str(asked.pop("normalize", "unit"))
            knobs = Knobs.of(asked)
            if source not in uploaded and source not in ("digits", "gaussian-mixture"):
                raise InputError(f"source={source[:40]!r} is not here; choose digits or a file")
            data: Data = uploaded[source] if source in uploaded else await computed(load, source)
            return await computed(answers.measured, knobs, data, normalize)
        return PlainTextResponse("there is no such answer", 404)

    async def upload(request: Request) -> Any:
        name = Path(request.query_params.get("name", "")).name
        suffix = Path(name).suffix.lower()
        if suffix not in _ENDINGS:
            raise InputError(f"file={name[:80]!r} must end in {', '.join(_ENDINGS)}")
        label = request.query_params.get("label") or None
        ignore = [one for one in request.query_params.getlist("ignore") if one]
        content = await body(request, _FILE)

        def read() -> Data:
            with scratch() as place:
                return load(write(place / f"yours{suffix}", content), label=label, ignore=ignore)

        uploaded.clear()  # one file at a time
        uploaded["yours"] = found = await computed(read)
        return {"source": "yours", "samples": len(found.X), "features": found.X.shape[1], "notes": list(found.notes)}

    async def missing(request: Request, error: Any) -> Response:
        return PlainTextResponse("not here; use the address that `notsodeep explore` printed", 404, _HEADERS)

    return Starlette(
        routes=[
            Route("/{token}/", guarded(page)),
            Route("/{token}/parts/{name}", guarded(part)),
            Route("/{token}/ask/{topic}", guarded(ask), methods=["POST"]),
            Route("/{token}/upload", guarded(upload), methods=["POST"]),
        ],
        exception_handlers={404: missing},
    )


def serve(port: int = 0, *, tell: Callable[[str], None] = print, token: str | None = None) -> None:
    """Serve the page on this machine until Ctrl-C.

    Parameters
    ----------
    port : int
        0 takes a free one.
    tell : callable
        Called with the address once the server listens.
    token : str, optional
        Part of the address that nobody can guess; a random one when absent.
    """
    uvicorn = need("uvicorn")
    token = token or secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            raise InputError(f"port={port} cannot be used: {error.strerror}; pass another one, or 0") from None
        listener.listen()
        number = listener.getsockname()[1]
        settings = uvicorn.Config(
            application(token, number), log_level="critical", access_log=False, server_header=False, lifespan="off"
        )
        tell(f"http://{_HOST}:{number}/{token}/")
        uvicorn.Server(settings).run(sockets=[listener])


def _page() -> str:
    options = {"phi": ACTIVATIONS, "kind": [kind.label for kind in Kind]}
    text = _asset("page.html").replace("{{version}}", __version__).replace("{{sets}}", NAMES[0])
    for name, entries in options.items():
        text = text.replace(f"{{{{{name}}}}}", "".join(f'<option value="{one}">{one}</option>' for one in entries))
    return text


def _styles() -> str:
    shared = (files("notsodeep.report") / "page.css").read_text(encoding="utf-8")
    return f"{theme_rules()}\n{shared}\n{_asset('page.css')}"


def _asset(name: str) -> str:
    return (files("notsodeep.explore") / name).read_text(encoding="utf-8")
