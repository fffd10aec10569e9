"""The built-in families, one file per kind; importing this registers them."""

from topology.families import circulant as circulant
from topology.families import static as static
