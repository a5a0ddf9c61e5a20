"""PyTorch networks: the implicit DEQ, the explicit network that replaces it, and what lies between."""

from notsodeep.checks import MissingExtraError

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ImportError as missing:
    raise MissingExtraError(
        f'notsodeep.nn needs {missing.name}; install it with: pip install "notsodeep[nn]"'
    ) from None

from notsodeep.nn.activations import TensorActivation
from notsodeep.nn.fixed_point import SolveReport
from notsodeep.nn.networks import DEQNet, EffectiveWeights, ExplicitNet

__all__ = ["DEQNet", "EffectiveWeights", "ExplicitNet", "SolveReport", "TensorActivation"]
