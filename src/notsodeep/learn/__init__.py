"""Kernel machines and preprocessing in the manner of scikit-learn."""

from notsodeep.learn.preprocessing import ZCA, CenterAndScale, PixelNorm, UnitNorm

__all__ = ["ZCA", "CenterAndScale", "PixelNorm", "UnitNorm"]
