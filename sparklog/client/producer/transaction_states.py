"""The states of a transactional producer, the legal transitions, and the operations that callers wait for."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from sparklog.errors import SparklogError
from sparklog.model import ProducerEpoch, ProducerId

TRANSACTION_VERSION: Final = "transaction.version"
END_BEFORE_V2: Final = 4
"""The newest version of EndTxn that does not bump the epoch."""


def follows_v2(features: Mapping[str, int]) -> bool:
    """Whether a cluster with these feature levels uses the transactions of KIP-890."""
    return features.get(TRANSACTION_VERSION, 0) >= 2


class State(Enum):
    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


LEGAL: Final[Mapping[State, tuple[State, ...]]] = {
    State.UNINITIALIZED: (State.INITIALIZING,),
    State.INITIALIZING: (State.READY, State.UNINITIALIZED, State.FATAL_ERROR),
    State.READY: (State.IN_TRANSACTION, State.FATAL_ERROR),
    State.IN_TRANSACTION: (State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR),
    State.COMMITTING: (State.READY, State.ABORTABLE_ERROR, State.FATAL_ERROR),
    State.ABORTING: (State.READY, State.FATAL_ERROR),
    State.ABORTABLE_ERROR: (State.ABORTING, State.FATAL_ERROR),
    State.FATAL_ERROR: (),
}
OPEN: Final = (State.IN_TRANSACTION, State.COMMITTING)
ENDING: Final = (State.COMMITTING, State.ABORTING)
REMEDIES: Final = {
    State.UNINITIALIZED: "call init() first",
    State.INITIALIZING: "init() has not ended: call it again to wait for it",
    State.READY: "no transaction has begun: call begin() first",
    State.IN_TRANSACTION: "a transaction is open: commit() or abort() it first",
    State.COMMITTING: "commit() has not ended: call it again to wait for it",
    State.ABORTING: "abort() has not ended: call it again to wait for it",
}


class Operation:
    """An operation that a caller waits for. Invariant: `error` is set when `is_done` is, once."""

    __slots__ = ("error", "is_done", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_done = False
        self.error: SparklogError | None = None

    def end(self, error: SparklogError | None = None) -> None:
        """End the operation; a second call has no effect."""
        if not self.is_done:
            self.is_done, self.error = True, error


class ProducerIdentity(NamedTuple):
    """The identity of a transaction: a client that has all three values may end it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
