"""The contract: what all nodes of a swarm must agree on, and where two differ."""

from __future__ import annotations

from hashlib import blake2b

from p2p.errors import ContractError, JoinError
from p2p.net.messages import Contract, Refusal
from p2p.state.schema import Schema, first_difference

COMPARED = ("optimizer", "algorithm", "topology", "seed")


def digest(contract: Contract) -> bytes:
    """16 bytes that every record carries; the tensors' hashes are in the schema's fingerprint."""
    text = f"{contract.optimizer}|{contract.algorithm}|{contract.topology}|{contract.seed}"
    return blake2b(contract.schema + contract.fingerprint + text.encode(), digest_size=16).digest()


def objection(own: Contract, theirs: Contract, schema: Schema) -> Refusal | None:
    """Why a joiner's contract is refused; None if it is the own one."""
    for what in COMPARED:
        if getattr(own, what) != getattr(theirs, what):
            return Refusal(what, str(getattr(own, what)), 0)
    index = first_difference(own.tensors, theirs.tensors)
    if index is not None:
        return Refusal("schema", schema.describe(index), index)
    if own.fingerprint != theirs.fingerprint:
        return Refusal("topology", f"{own.topology} with other rows: the code differs", 0)
    return Refusal("schema", "another size of blocks", 0) if own.schema != theirs.schema else None


def refused(refusal: Refusal, own: Contract, schema: Schema) -> JoinError:
    """A refusal, as the joiner's error: both sides of the difference, and what to do; a ContractError where there is one."""
    if refusal.reason in ("busy", "left"):
        return JoinError(refusal.theirs)
    if refusal.reason == "schema":
        return ContractError(
            f"the swarm trains another model: it has {refusal.theirs}; this node has {schema.describe(refusal.index)}"
        )
    if refusal.reason in COMPARED:
        ours = getattr(own, refusal.reason)
        return ContractError(f"the swarm uses another {refusal.reason}: {refusal.theirs!r}; this node {ours!r}")
    return ContractError(f"refused: {refusal.reason}: {refusal.theirs}")
