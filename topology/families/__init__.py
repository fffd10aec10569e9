"""The built-in families, one file per kind; importing this registers them."""

from topology.families import adaptive as adaptive
from topology.families import alternating as alternating
from topology.families import base_k as base_k
from topology.families import circulant as circulant
from topology.families import epidemic as epidemic
from topology.families import file as file
from topology.families import matcha as matcha
from topology.families import matching as matching
from topology.families import random as random
from topology.families import static as static
from topology.families import two_level as two_level
