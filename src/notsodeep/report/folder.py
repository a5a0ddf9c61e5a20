"""The directory of a report, which replaces an earlier one and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from notsodeep import files
from notsodeep.checks import InputError

__all__ = ["new_report"]


@contextmanager
def new_report(path: Path, marker: str, names: Sequence[str], parameter: str = "report") -> Iterator[Path]:
    """Yield an empty directory; it becomes `path` only if the block succeeds.

    An existing `path` is replaced if it is empty or holds only files of these names, `marker` among them. Anything else
    may be the user's work and is refused.
    """

    def check(place: Path) -> None:
        if place.is_dir() and (present := sorted(entry.name for entry in place.iterdir())):
            strangers = [name for name in present if name not in names]
            if marker not in present or strangers:
                named = strangers[0] if strangers else present[0]
                raise InputError(
                    f"{parameter}={str(path)!r} holds files that are not a report (such as {named!r}), and a report "
                    "replaces the whole directory; pass an empty or a new directory"
                )

    check(path)
    with files.building(path, parameter=parameter, check=check) as fresh:
        yield fresh
