"""Both explicit designs beside the DEQ: distances against dense kernels, parameters against the networks."""

from __future__ import annotations

import json

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import data
from notsodeep.study import Study, designs


@pytest.mark.parametrize(("name", "any_norms"), [("relu", True), ("swish", False)])
def test_both_designs(name: str, any_norms: bool) -> None:
    deq = nsd.DEQ(name, 0.2, 0.8)
    X = np.random.default_rng(0).standard_normal((40, 30))
    study = Study.of(nsd.match(deq, tau0=1.0), data.Data("noise", X), progress=False)
    found = designs(study, width=32)
    implicit, matched, single = found.networks
    assert (implicit.layers, matched.layers, single.layers) == (None, 2, 1)
    assert single.normalised is not None
    assert single.normalised < 1e-12
    assert (single.distance is not None) == any_norms
    if single.distance is not None:
        assert single.distance < 1e-12
    assert matched.distance == pytest.approx(study.matched.error, rel=1e-6)
    content = json.loads(json.dumps(found.to_dict()))
    assert [row[0] for row in content["rows"]] == ["DEQ", "matched", "single layer"]
    assert "network" not in content["single"]  # it has thousands of coefficients
    nn = pytest.importorskip("notsodeep.nn")
    for one, network in ((matched, study.network), (single, found.single.network)):
        net = nn.ExplicitNet(network, 30, 32, 10)
        assert one.parameters == sum(parameter.numel() for parameter in net.parameters())
        assert one.milliseconds is not None
        assert one.milliseconds > 0
    net = nn.DEQNet(deq, 30, 32, 10)
    assert implicit.parameters == sum(parameter.numel() for parameter in net.parameters())
