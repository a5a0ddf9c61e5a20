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
from notsodeep.nn.certificate import Certificate, certificate, ling23_network
from notsodeep.nn.descent import Trajectory, descend
from notsodeep.nn.empirical import empirical_kernel
from notsodeep.nn.fixed_point import SolveReport
from notsodeep.nn.networks import DEQNet, EffectiveWeights, ExplicitNet

__all__ = [
    "Certificate",
    "DEQNet",
    "EffectiveWeights",
    "ExplicitNet",
    "SolveReport",
    "TensorActivation",
    "Trajectory",
    "certificate",
    "descend",
    "empirical_kernel",
    "ling23_network",
]
