"""PyTorch networks: the implicit DEQ, the explicit network that replaces it, and what lies between."""

from notsodeep.extras import missing

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise missing(error.name or "torch") from None

from notsodeep.nn.activations import TensorActivation
from notsodeep.nn.empirical import empirical_kernel
from notsodeep.nn.epochs import Epoch, History
from notsodeep.nn.equilibrium import Equilibrium
from notsodeep.nn.export import load, save
from notsodeep.nn.fixed_point import SolveReport
from notsodeep.nn.learnable_kernel import DEQKernel
from notsodeep.nn.ling23.condition import Certificate, certificate, ling23_network
from notsodeep.nn.ling23.descent import Trajectory, descend
from notsodeep.nn.networks import DEQNet, EffectiveWeights, ExplicitNet
from notsodeep.nn.onnx_graph import export_onnx
from notsodeep.nn.recognition import ModuleMatch, match_module
from notsodeep.nn.replacement import Replacement, replace
from notsodeep.nn.tensor_kernels import kernel
from notsodeep.nn.training import fit

__all__ = [
    "Certificate",
    "DEQKernel",
    "DEQNet",
    "EffectiveWeights",
    "Epoch",
    "Equilibrium",
    "ExplicitNet",
    "History",
    "ModuleMatch",
    "Replacement",
    "SolveReport",
    "TensorActivation",
    "Trajectory",
    "certificate",
    "descend",
    "empirical_kernel",
    "export_onnx",
    "fit",
    "kernel",
    "ling23_network",
    "load",
    "match_module",
    "replace",
    "save",
]
