"""One hidden layer with a given kernel on a sphere: its activation, its signs, and how far it is off."""

from notsodeep.one_layer.hermite_design import Design, design
from notsodeep.one_layer.sphere_match import SphereMatch, match_on_sphere, spectral_distance, sphere_norm

__all__ = ["Design", "SphereMatch", "design", "match_on_sphere", "spectral_distance", "sphere_norm"]
