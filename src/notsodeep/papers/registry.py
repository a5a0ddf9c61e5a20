"""All entries by name."""

from __future__ import annotations

from notsodeep.checks import InputError, nearest
from notsodeep.papers import (
    covariances,
    errata,
    fk20_accuracy,
    fk20_depth,
    forecast,
    ling23_training,
    ling24_accuracy,
    ling24_decay,
    ling24_matching,
    ling24_spectra,
    ling24_speed,
)
from notsodeep.papers.entry import Entry

__all__ = ["ENTRIES", "find"]

_MODULES = (
    ling24_decay,
    ling24_matching,
    ling24_accuracy,
    ling24_spectra,
    ling24_speed,
    ling23_training,
    fk20_depth,
    fk20_accuracy,
    errata,
    forecast,
    covariances,
)

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in sorted((entry for module in _MODULES for entry in module.ENTRIES), key=lambda entry: entry.name)
}


def find(name: str) -> Entry:
    """The entry of this name; the error for a misspelt one suggests the nearest."""
    if name not in ENTRIES:
        raise InputError(f"name={name!r} is not known{nearest(name, ENTRIES)} (see notsodeep reproduce --list)")
    return ENTRIES[name]
