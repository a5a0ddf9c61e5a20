"""The store of finished trials: one small file each, written as soon as it is done, so nothing is computed twice."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notsodeep import __version__, files
from notsodeep.checks import InputError, nonnegative
from notsodeep.papers.entry import Settings
from notsodeep.reading import json_file

__all__ = ["Trials", "own_json"]

_LARGEST = 256 << 20  # bytes of the rows of an entry


class Trials:
    """Numbers by settings, in ``<folder>/<key>.json``.

    The key is a hash of the entry, of its revision, of the version of this package and of the
    settings: a trial is reused only if all of them are the same, and if its content has its checksum.

    Parameters
    ----------
    folder : Path
    name : str
        Of the entry.
    revision : int

    Attributes
    ----------
    measured, reused : int
        How many trials were computed by this object and how many it found.
    seconds : float
        What all of them took when they were computed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     trials = Trials(Path(folder), "example", 1)
    ...     [trials.get({"x": 3}, lambda x: {"square": x * x}) for _ in range(2)]
    ...     trials.measured, trials.reused
    [{'x': 3, 'square': 9}, {'x': 3, 'square': 9}]
    (1, 1)
    """

    def __init__(self, folder: Path, name: str, revision: int) -> None:
        self.folder = folder
        self.identity = {"entry": name, "revision": revision, "version": __version__}
        self.measured = self.reused = 0
        self.seconds = 0.0

    def path(self, settings: Settings) -> Path:
        """Where the numbers of these settings are kept."""
        return self.folder / f"{_digest({**self.identity, 'settings': dict(settings)})[:20]}.json"

    def find(self, settings: Settings) -> tuple[dict[str, Any], float] | None:
        """The numbers and their computing time, if the file exists and is valid."""
        try:
            content = dict(json_file(self.path(settings)))
            written = content.pop("sha256", None)  # trials of version 0.1.0 have none
            seconds, numbers = nonnegative(content.pop("seconds"), "seconds"), content.pop("numbers")
            whole = written is None or written == _digest({**content, "numbers": numbers})
            ours = _text(content) == _text({**self.identity, "settings": dict(settings)})
            return (numbers, seconds) if whole and ours and isinstance(numbers, dict) else None
        except (OSError, LookupError, TypeError, ValueError):
            return None

    def get(self, settings: Settings, measure: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """Settings and numbers in one row; calls `measure` only if the numbers are not stored."""
        found = self.find(settings)
        if found is not None:
            self.reused += 1
            self.seconds += found[1]
            return {**settings, **found[0]}
        began = time.perf_counter()
        numbers = measure(**settings)
        seconds = round(time.perf_counter() - began, 3)
        content = {**self.identity, "settings": dict(settings), "numbers": numbers}
        content |= {"seconds": seconds, "sha256": _digest(content)}
        files.write(self.path(settings), json.dumps(content, allow_nan=False) + "\n", parents=True)
        self.measured += 1
        self.seconds += seconds
        return {**settings, **numbers}


def _text(content: Any) -> str:
    """As a file holds it: numbers that name something have become text."""
    return json.dumps(json.loads(json.dumps(content, allow_nan=False)), sort_keys=True)


def _digest(content: Any) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()


def own_json(path: Path, kind: type) -> Any:
    """What a run wrote to a JSON file: a dict, or a list of rows."""
    try:
        content = json_file(path, _LARGEST)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); delete it and run the entry again") from None
    if not isinstance(content, kind):
        raise InputError(f"{path} does not hold what a run writes; delete it and run the entry again")
    return content
