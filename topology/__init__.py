"""Who talks with whom: communication graphs for decentralized training. Knows numpy and networkx, nothing else.

make("base:k=2") builds one by name, `from_networkx` from a graph; a subclass of `Topology` with one method is your own.
"""

from topology.analysis import Analysis, analyze, errors, reference
from topology.base import Member, Properties, Topology
from topology.custom import from_networkx
from topology.errors import SpecError, TopologyError, TopologyRefused
from topology.fallback import FALLBACK, fitting
from topology.fingerprint import fingerprint
from topology.links import Links, infer_sites, with_sites
from topology.measure import canonical, check, groups, measured
from topology.mixing import Mixing, Row
from topology.registry import catalog, make, names, register, spec_of
from topology.survey import Figure, Span, Survey, sited, spans, surveyed

__all__ = [
    "FALLBACK",
    "Analysis",
    "Figure",
    "Links",
    "Member",
    "Mixing",
    "Properties",
    "Row",
    "Span",
    "SpecError",
    "Survey",
    "Topology",
    "TopologyError",
    "TopologyRefused",
    "analyze",
    "canonical",
    "catalog",
    "check",
    "errors",
    "fingerprint",
    "fitting",
    "from_networkx",
    "groups",
    "infer_sites",
    "make",
    "measured",
    "names",
    "reference",
    "register",
    "sited",
    "spans",
    "spec_of",
    "surveyed",
    "with_sites",
]
