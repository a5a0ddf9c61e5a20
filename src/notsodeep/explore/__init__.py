"""A local page with knobs: a model, its kernel, the networks that replace it, spectra, data (extra `explore`)."""

from notsodeep.explore.server import application, serve

__all__ = ["application", "serve"]
