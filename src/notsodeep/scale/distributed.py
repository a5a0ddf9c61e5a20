"""Tiles on the workers of a Dask cluster.

The samples are scattered once, to every worker; each worker process prepares the kernel from them once and then
computes tiles. A worker that sees the store (a shared file system, or the same machine) writes its tiles itself, so
that nothing large travels; from one that does not, the tile is sent back and written here. Few tiles are in flight, so
memory stays bounded on both sides. The caller holds the lock, whoever writes.

Workers may die. Dask gives their tiles to the others; should the samples be lost with the last worker that had
them, they are scattered again. The bits are those of a local run on the same kind of processor, whichever worker
computed a tile: see :mod:`notsodeep.threads`.

Nothing here opens a port; a cluster is what the caller passes or names.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from numpy.typing import DTypeLike, NDArray

from notsodeep import kernels
from notsodeep.checks import InputError
from notsodeep.extras import need
from notsodeep.progress import Callback, Progress
from notsodeep.scale.products import multiply_tile, product
from notsodeep.scale.store import Tile, TileStore
from notsodeep.threads import Scratch, one_thread_each

__all__ = ["ClusterBlocks", "connect", "connected", "multiply", "on_workers", "write_tiles"]

Array: TypeAlias = NDArray[Any]
Job: TypeAlias = Callable[..., Any]

_ATTEMPTS = 5  # times a tile may lose its worker or its samples
_AHEAD = 2  # tiles in flight for every thread of the cluster
_ADDRESS = re.compile(r"((tcp|tls|ws|wss)://)?(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}")
_ANSWER = "10s"  # within which a scheduler must answer
_held: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # blocks whose samples are on a cluster
_PATIENCE = 60.0  # seconds without any worker before giving up


@contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler at ``tcp://host:port``, or None without an address."""
    if address is None:
        yield None
        return
    distributed = need("distributed")
    if not _ADDRESS.fullmatch(address):  # some others raise in a thread of Dask's, which then hangs at the end
        raise InputError(f"scheduler={address!r} is no address; pass tcp://host:port")
    try:
        client = distributed.Client(address, timeout=_ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"scheduler={address!r} does not answer: {error}") from None
    with client:
        yield client


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Yield a client: the one that is passed, which stays open, or one of the scheduler at an address."""
    if isinstance(client, str):
        with connect(client) as own:
            yield own
    else:
        yield client


class ClusterBlocks:
    """The kernel `blocks`, whose products are computed on the workers of `client`; all else is done here."""

    def __init__(self, blocks: Any, client: Any) -> None:
        self._blocks, self._client = blocks, client

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of an object being copied, which has no blocks yet
            raise AttributeError(name)
        return getattr(self._blocks, name)

    def astype(self, dtype: DTypeLike) -> ClusterBlocks:
        return ClusterBlocks(self._blocks.astype(dtype), self._client)

    def product(self, vectors: Array, progress: Progress = None) -> Array:
        """K V: only vectors travel."""
        return product(self._blocks, vectors, client=self._client, progress=progress)


def write_tiles(client: Any, blocks: Any, store: TileStore, tiles: Sequence[Tile], report: Callback) -> None:
    """Have the workers compute `tiles` of a kernel into `store`."""
    refused: set[Tile] = set()  # tiles a worker wrote where we do not see them

    def arguments(tile: Tile) -> tuple[Any, ...]:
        path = None if tile in refused else str(store.path)
        return tile, store.span(tile), path, store.claim

    def receive(tile: Tile, result: Array | None) -> bool:
        if result is not None:
            store.write(tile, result)
        elif not store.exists(tile):
            refused.add(tile)
            return False
        return True

    on_workers(client, blocks, _write_tile, tiles, arguments, receive, report)


def multiply(
    client: Any,
    blocks: Any,
    spans: Sequence[tuple[slice, slice]],
    vectors: Array,
    add: Callable[[Any, Any], None],
    report: Callback,
) -> None:
    """Have the workers multiply the rectangles `spans` with their parts of `vectors`; only vectors travel."""
    results: dict[int, Any] = {}

    def arguments(k: int) -> tuple[Any, ...]:
        rows, columns = spans[k]
        return rows, columns, vectors[columns], vectors[rows] if blocks.symmetric and rows != columns else None

    def receive(k: int, result: Any) -> bool:
        results[k] = result
        return True

    on_workers(client, blocks, _multiply_tile, range(len(spans)), arguments, receive, report)
    for k, span in enumerate(spans):  # in this order whoever came first, so that the sum has the same bits
        add(span, results[k])


def on_workers(
    client: Any,
    blocks: Any,
    job: Job,
    items: Sequence[Any],
    arguments: Callable[[Any], tuple[Any, ...]],
    receive: Callable[[Any, Any], bool],
    report: Callback,
) -> None:
    """Run ``job(blocks, *arguments(item))`` on workers for every item and hand each result to `receive`.

    `receive` returns whether the item is finished; otherwise it is tried again.
    """
    distributed = need("distributed")
    if not isinstance(client, distributed.Client):
        raise InputError(f"client={client!r} must be a dask.distributed.Client")
    waiting, attempts = list(reversed(items)), dict.fromkeys(items, 0)
    running: dict[Any, Any] = {}
    recipe = (blocks.model, {"kind": blocks.kinds, "dtype": blocks.dtype.name, **blocks.options})
    samples = _scattered(client, blocks)
    done, lost = 0, False
    try:
        while waiting or running:
            if lost:
                samples, lost = _scattered(client, blocks, again=True), False
            while waiting and len(running) < _AHEAD * _threads(client):
                item = waiting.pop()
                future = client.submit(_run, job, recipe, *samples, arguments(item), pure=False, retries=_ATTEMPTS)
                running[future] = item
            for future in _finished(client, distributed, running):
                item = running.pop(future)
                result, failure = _outcome(distributed, future)
                if failure is None and receive(item, result):
                    done += 1
                    report(done, len(items))
                    continue
                lost = lost or failure is not None
                attempts[item] += 1
                waiting.append(item)
                if attempts[item] >= _ATTEMPTS:
                    raise RuntimeError(
                        f"{item} failed on {_ATTEMPTS} workers, the last time with "
                        f"{failure or 'a result nobody sees'}; what has been written stays valid"
                    )
    finally:
        client.cancel(list(running))


def _scattered(client: Any, blocks: Any, *, again: bool = False) -> tuple[str, Any, Any]:
    """The samples on the workers, under a name; sent once for all calls with these blocks."""
    known = _held.get(blocks)
    if known is None or known[0] is not client or again:
        _threads(client)
        sent = [part if part is None else client.scatter(part, broadcast=True) for part in blocks.samples]
        known = _held[blocks] = (client, (uuid.uuid4().hex, *sent))
    return cast("tuple[str, Any, Any]", known[1])


def _threads(client: Any) -> int:
    """Threads of all workers, waiting a while for the first of them."""
    began = time.monotonic()
    while not (found := sum(client.nthreads().values())):
        if time.monotonic() - began > _PATIENCE:
            raise RuntimeError("the cluster has no workers; start some and run the same command again")
        time.sleep(0.1)
    return int(found)


def _finished(client: Any, distributed: Any, running: dict[Any, Any]) -> list[Any]:
    """Wait for at least one future that is no longer pending."""
    while True:
        ended = [future for future in running if future.status != "pending"]
        if ended:
            return ended
        try:
            with client.as_current():
                distributed.wait(list(running), timeout=1.0, return_when="FIRST_COMPLETED")
        except (TimeoutError, distributed.CancelledError):
            _threads(client)


def _outcome(distributed: Any, future: Any) -> tuple[Any, str | None]:
    """The result, or the reason why the worker or its data was lost; errors of the job itself are raised."""
    if future.status in ("cancelled", "lost"):
        return None, "lost samples"
    try:
        return future.result(), None
    except (distributed.KilledWorker, distributed.CancelledError) as error:
        return None, type(error).__name__


# --- what runs on a worker ------------------------------------------------------------------

_prepared: dict[str, Any] = {}
_guard = threading.Lock()
_scratch = Scratch()


def _run(
    job: Job,
    recipe: tuple[Any, dict[str, Any]],
    name: str,
    first: Array,
    second: Array | None,
    arguments: tuple[Any, ...],
) -> Any:
    with one_thread_each():
        return job(_blocks(recipe, name, first, second), *arguments)


def _blocks(recipe: tuple[Any, dict[str, Any]], name: str, first: Array, second: Array | None) -> Any:
    """The kernel of the samples sent under this name, prepared once a process."""
    with _guard:
        if name not in _prepared:
            _prepared.clear()  # one kernel at a time
            model, options = recipe
            _prepared[name] = kernels.blocks(model, first, second, **options)
        return _prepared[name]


def _write_tile(blocks: Any, tile: Tile, span: tuple[slice, slice], path: str | None, claim: str) -> Array | None:
    store = None if path is None else _seen(path, claim)
    if store is None:
        return cast("Array", blocks.block(*span))
    rows, columns = span
    memory = _scratch.array((rows.stop - rows.start, columns.stop - columns.start), blocks.dtype)
    store.write(tile, blocks.block(rows, columns, memory))
    return None


def _seen(path: str, claim: str) -> TileStore | None:
    """The store that the caller has locked, unless this worker has another file system."""
    try:
        store = TileStore(path, claim)
        store.require_claim()
    except InputError:
        return None
    return store


def _multiply_tile(blocks: Any, rows: slice, columns: slice, right: Array, left: Array | None) -> tuple[Array, Any]:
    return multiply_tile(blocks.block(rows, columns), right, left)
