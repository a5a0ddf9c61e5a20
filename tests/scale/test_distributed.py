"""A real cluster of two worker processes on the loopback interface: the same bits, also when one of them dies."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster
from tests.command_line import Run
from tests.scale import problems

from notsodeep import InputError
from notsodeep.kernels import KernelBlocks
from notsodeep.scale import compute, distributed, verify


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with problems.cluster() as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as connected:
        yield connected


def count_builds() -> None:
    """On a worker: count how often a kernel is prepared."""
    from notsodeep.scale import distributed

    plain = KernelBlocks.__init__

    def counted(*arguments: Any, **options: Any) -> None:
        distributed.builds += 1
        plain(*arguments, **options)

    distributed.builds, KernelBlocks.__init__ = 0, counted  # type: ignore[method-assign]


def builds() -> int:
    from notsodeep.scale import distributed

    return distributed.builds


def test_workers_write_what_a_local_run_writes(client: Client, tmp_path: Path) -> None:
    compute(problems.source(300), tmp_path / "local.zarr", tile=25)
    client.run(count_builds)
    compute(problems.source(300), tmp_path / "far.zarr", tile=25, client=client)
    assert problems.contents(tmp_path / "local.zarr") == problems.contents(tmp_path / "far.zarr")
    assert list(client.run(builds).values()) == [1, 1]  # once a worker, not once a tile
    X, Y = problems.samples(60), problems.samples(40, seed=1)
    problems.DEQ.kernel(X, Y, out=tmp_path / "two.zarr", client=client)
    np.testing.assert_allclose(
        np.asarray(compute(KernelBlocks(problems.DEQ, X, Y), tmp_path / "two.zarr")),
        problems.DEQ.kernel(X, Y),
        rtol=1e-13,
    )


def test_workers_that_do_not_see_the_store_send_their_tiles(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(problems.source(100), tmp_path / "local.zarr", tile=25)
    seen: list[Any] = []
    plain = distributed.on_workers

    def elsewhere(client: Any, blocks: Any, job: Any, items: Any, arguments: Any, receive: Any, report: Any) -> None:
        def far(tile: Any) -> tuple[Any, ...]:
            tile, span, path, claim = arguments(tile)
            # a copy of the store on another disk, even with the caller's claim; another store of the same kernel
            place = {(0, 1): "copy.zarr", (0, 2): "other.zarr"}.get(tile, "nowhere.zarr")
            if tile == (0, 1):
                shutil.copy(tmp_path / "far.zarr" / ".writer", tmp_path / "copy.zarr")
            return tile, span, path and str(tmp_path / place), claim

        def note(tile: Any, result: Any) -> bool:
            seen.append((tile, result is not None))
            return bool(receive(tile, result))

        plain(client, blocks, job, items, far, note, report)

    for name in ("copy.zarr", "other.zarr"):
        compute(problems.source(100), tmp_path / name, tile=25)
    before = problems.identities(tmp_path / "other.zarr")
    monkeypatch.setattr(distributed, "on_workers", elsewhere)
    compute(problems.source(100), tmp_path / "far.zarr", tile=25, client=client)
    assert problems.contents(tmp_path / "local.zarr") == problems.contents(tmp_path / "far.zarr")
    assert ((0, 1), False) in seen  # written where nobody sees it …
    assert ((0, 1), True) in seen  # … noticed, and sent the second time
    assert ((0, 2), False) not in seen
    assert problems.identities(tmp_path / "other.zarr") == before
    assert ((0, 0), True) in seen


def test_a_worker_killed_in_the_middle_changes_nothing(client: Client, tmp_path: Path) -> None:
    compute(problems.source(300), tmp_path / "local.zarr", tile=25)
    victims = list(client.run(os.getpid).values())
    assert len(victims) == 2
    assert os.getpid() not in victims
    reports: list[int] = []

    def strike(done: int, total: int) -> None:
        reports.append(done)
        if done == 15:
            os.kill(victims[0], signal.SIGKILL)

    compute(problems.source(300), tmp_path / "far.zarr", tile=25, client=client, progress=strike)
    assert reports[-1] == 78
    assert reports == sorted(reports)
    assert problems.contents(tmp_path / "local.zarr") == problems.contents(tmp_path / "far.zarr")
    client.wait_for_workers(2, timeout=240)
    assert victims[0] not in client.run(os.getpid).values()


def test_all_workers_killed_and_the_samples_with_them(client: Client, tmp_path: Path) -> None:
    compute(problems.source(300), tmp_path / "local.zarr", tile=25)

    def strike(done: int, total: int) -> None:
        if done == 15:
            for victim in client.run(os.getpid).values():
                os.kill(victim, signal.SIGKILL)

    compute(problems.source(300), tmp_path / "far.zarr", tile=25, client=client, progress=strike)
    assert problems.contents(tmp_path / "local.zarr") == problems.contents(tmp_path / "far.zarr")


def test_a_store_moved_under_its_workers_is_one_clear_error(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"

    def strike(done: int, total: int) -> None:
        if done == 5:
            path.rename(tmp_path / "elsewhere.zarr")
            compute(problems.source(300, kind="ck"), path, tile=25)

    with pytest.raises(InputError, match="was moved, deleted or replaced while it was being written"):
        compute(problems.source(300), path, tile=25, client=client, progress=strike)
    assert verify(path).sound
    assert not verify(tmp_path / "elsewhere.zarr").damaged


def test_products_on_workers_have_the_same_bits(client: Client) -> None:
    source, V = problems.source(300), np.random.default_rng(1).standard_normal((300, 3))
    there = distributed.ClusterBlocks(source, client)
    assert np.array_equal(there @ V, source.product(V, deterministic=True))
    remote = there.astype("float32")
    assert remote.dtype == np.float32
    assert remote.shape == (300, 300)
    assert np.array_equal(remote.product(V[:, 0]), source.astype("float32").product(V[:, 0], deterministic=True))


def test_an_error_of_the_kernel_is_not_retried(client: Client, tmp_path: Path) -> None:
    source = problems.source(50)
    source.kinds = ("no such kind",)  # the workers refuse it
    with pytest.raises(InputError, match="no such kind"):
        compute(source, tmp_path / "K.zarr", tile=25, client=client)


def test_what_is_no_client_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be a dask\.distributed\.Client"):
        compute(problems.source(50), tmp_path / "K.zarr", client="tcp://127.0.0.1:8786")


def test_the_command_takes_a_scheduler(cluster: LocalCluster, tmp_path: Path, run: Run) -> None:
    np.save(tmp_path / "X.npy", problems.samples(60))
    command = ["kernel", tmp_path / "X.npy", "--kind", "ntk", "--tile", "25", "--json", "--out"]
    for name, more in (("local.zarr", []), ("far.zarr", ["--scheduler", cluster.scheduler_address])):
        result = run(*command, tmp_path / name, *more)
        assert (result.code, result.json["shape"]) == (0, [60, 60])
    assert problems.contents(tmp_path / "local.zarr") == problems.contents(tmp_path / "far.zarr")
    assert verify(tmp_path / "far.zarr").sound


def listening(process: psutil.Process) -> set[str]:
    return {c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def test_ports_are_opened_on_loopback_only_and_only_by_a_cluster(client: Client, tmp_path: Path) -> None:
    family = [psutil.Process(pid) for pid in (os.getpid(), *client.run(os.getpid).values())]
    assert set().union(*map(listening, family)) == {"127.0.0.1"}
    code = """
import sys, psutil
from tests.scale import problems
from notsodeep.scale import compute
def look(done, total):
    opened = psutil.Process().net_connections("inet")
    assert not opened, opened
compute(problems.source(50), sys.argv[1], tile=25, progress=look)
print("none")
"""
    process = problems.start(code, tmp_path / "K.zarr")
    out, err = process.communicate()
    assert out == "none\n", err


def test_a_scheduler_that_does_not_answer_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(distributed, "_ANSWER", "0.3s")
    with pytest.raises(InputError, match="does not answer"), distributed.connected(address):
        pass


@pytest.mark.parametrize(
    "address", ["", "tcp://", "foo://x:1", "/etc/passwd", "ucx://1.2.3.4:1", "tcp://[::1", "a b:1", "x"]
)
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InputError, match="is not an address; pass tcp://host:port"), distributed.connected(address):
        pass


def test_a_secured_scheduler_needs_certificates() -> None:
    with pytest.raises(InputError, match="needs certificates"), distributed.connected("tls://127.0.0.1:8786"):
        pass


def test_no_file_and_no_setting_names_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --scheduler nothing is asked, whatever Dask's own settings say."""
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:1")
    monkeypatch.setattr("distributed.Client", None)
    with distributed.connected(None) as client:
        assert client is None
    assert verify(compute(problems.source(50), tmp_path / "K.zarr").path).sound
