"""Reproductions of figures and tables of the papers: one entry each, resumable, with a verdict.

An entry (:class:`~notsodeep.papers.entry.Entry`) is four functions: ``plan`` lists the settings of
its trials, ``measure`` turns one of them into numbers, ``judge`` compares the numbers with
what the paper says, and ``draw`` makes the figure. Everything else is done by
:func:`notsodeep.papers.run.reproduce`: finished trials are kept and never redone, data, figure and verdict are
written. To add one, write the four functions in a module of its own and name it in ``registry.py``.
"""
