"""Tiles on the workers of a Dask cluster.

The samples are scattered once to every worker. Each worker process prepares the kernel from them once and then
computes tiles. A worker that can access the store (shared file system, or same machine) writes its tiles itself, so
nothing large is transferred; other workers send their tiles back to be written here. Few tiles are in flight, so
memory stays bounded on both sides. The caller holds the lock, whoever writes.

Workers may die. Dask reassigns their tiles; if the last worker that had the samples is lost, they are scattered
again. Results are bit-identical to a local run on the same kind of processor, whichever worker computes a tile: see
:mod:`notsodeep.threads`.

This module opens no port: the caller passes a client or an address.
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

import numpy as np
from numpy.typing import DTypeLike, NDArray

from notsodeep.checks import InputError
from notsodeep.extras import need
from notsodeep.kernels.matrices import ComputedBlocks, KernelMatrix, add, multiply
from notsodeep.progress import Callback, Progress, reporter
from notsodeep.scale.store import Tile, TileStore
from notsodeep.threads import Scratch, single_threaded

__all__ = ["ClusterBlocks", "connected", "on_workers", "placed", "write_tiles"]

Array: TypeAlias = NDArray[Any]
Job: TypeAlias = Callable[..., Any]

_ATTEMPTS = 5  # retries for a tile that lost its worker or its samples
_AHEAD = 2  # tiles in flight for every thread of the cluster
_ADDRESS = re.compile(r"((tcp|tls|ws|wss)://)?(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}")
_ANSWER = "10s"  # time limit for a scheduler to answer
_held: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # blocks whose samples are on a cluster
_PATIENCE = 60.0  # seconds without any worker before giving up


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Yield the client that was passed (or None), or a temporary one of the scheduler at ``tcp://host:port``."""
    if not isinstance(client, str):
        yield client
        return
    distributed = need("distributed")
    if not _ADDRESS.fullmatch(client):  # other schemes raise in a thread of Dask's, which then hangs at exit
        raise InputError(f"scheduler={client!r} is not an address; pass tcp://host:port")
    if client.startswith(("tls:", "wss:")) and not distributed.Security().get_connection_args("client")["ssl_context"]:
        raise InputError(
            f"scheduler={client!r} needs certificates; name them in Dask's configuration (distributed.comm.tls)"
        )
    try:
        own = distributed.Client(client, timeout=_ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"scheduler={client!r} does not answer: {error}") from None
    with own:
        yield own


@contextmanager
def placed(K: KernelMatrix, client: Any) -> Iterator[KernelMatrix]:
    """Yield K; if `client` (a Client or an address) is given, its workers compute the products."""
    with connected(client) as found:
        yield K if found is None else ClusterBlocks(K, found)


class ClusterBlocks(KernelMatrix):
    """The kernel `source`, whose products are computed on the workers of `client`; all else is done here."""

    def __init__(self, source: KernelMatrix, client: Any) -> None:
        if not isinstance(source, ComputedBlocks):
            raise InputError("client computes kernels from samples; a stored kernel is read here, so pass one of both")
        super().__init__(source.shape, source.dtype, source.symmetric)
        self.samples = source.samples
        self.source, self._client = source, client

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        return self.source.block(rows, columns, out, progress)

    def diagonal(self) -> Array:
        return self.source.diagonal()

    def columns(self, chosen: Array) -> Array:
        return self.source.columns(chosen)

    def astype(self, dtype: DTypeLike) -> ClusterBlocks:
        return ClusterBlocks(self.source.astype(dtype), self._client)

    @property
    def provenance(self) -> dict[str, Any]:
        return self.source.provenance

    def _product(self, vectors: Array, deterministic: bool, progress: Progress) -> Array:
        """K V: only vectors are transferred, and the sum is bit-identical whichever worker computes its parts."""
        spans = self.spans(self.tile)
        results: dict[int, Any] = {}

        def arguments(k: int) -> tuple[Any, ...]:
            rows, columns = spans[k]
            return rows, columns, vectors[columns], vectors[rows] if self.symmetric and rows != columns else None

        def receive(k: int, result: Any) -> bool:
            results[k] = result
            return True

        with reporter("product", len(spans), progress) as report:
            on_workers(self._client, self.source, _multiply_tile, range(len(spans)), arguments, receive, report)
        total = np.zeros((self.shape[0], vectors.shape[1]))
        for k, span in enumerate(spans):
            add(total, span, results[k])
        return total


def product(blocks: KernelMatrix, vectors: Array, *, client: Any = None, progress: Progress = None) -> Array:
    """The deterministic ``K.product(V)`` under its name of version 0.1."""
    source = blocks if client is None else ClusterBlocks(blocks, client)
    return source.product(vectors, deterministic=True, progress=progress)


def write_tiles(client: Any, blocks: ComputedBlocks, store: TileStore, tiles: Sequence[Tile], report: Callback) -> None:
    """Have the workers compute `tiles` of a kernel into `store`."""
    refused: set[Tile] = set()  # tiles that a worker wrote to a place we cannot see

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


def on_workers(
    client: Any,
    blocks: ComputedBlocks,
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
    recipe, samples = blocks.recipe, _scattered(client, blocks)
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
                        f"{failure or 'a tile that did not appear on disk'}; what has been written stays valid"
                    )
    finally:
        client.cancel(list(running))


def _scattered(client: Any, blocks: ComputedBlocks, *, again: bool = False) -> tuple[str, Any, Any]:
    """The samples on the workers, under a name; sent once and reused by later calls with these blocks."""
    known = _held.get(blocks)
    if known is None or known[0] is not client or again:
        _threads(client)
        sent = [part if part is None else client.scatter(part, broadcast=True) for part in blocks.samples]
        known = _held[blocks] = (client, (uuid.uuid4().hex, *sent))
    return cast("tuple[str, Any, Any]", known[1])


def _threads(client: Any) -> int:
    """Number of threads of all workers; waits a while for the first worker."""
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


def _run(job: Job, recipe: Any, name: str, first: Array, second: Array | None, arguments: tuple[Any, ...]) -> Any:
    """Run a job with the kernel of the samples sent under this name, prepared once a process."""
    with single_threaded():
        with _guard:
            if name not in _prepared:
                _prepared.clear()  # one kernel at a time
                kind, model, options = recipe
                _prepared[name] = kind(model, first, second, **options)
            blocks = _prepared[name]
        return job(blocks, *arguments)


def _write_tile(blocks: Any, tile: Tile, span: tuple[slice, slice], path: str | None, claim: str) -> Array | None:
    store = None if path is None else _seen(path, claim)
    if store is None:
        return cast("Array", blocks.block(*span))
    store.compute(tile, blocks, _scratch)
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
    return multiply(blocks.block(rows, columns), right, left)
