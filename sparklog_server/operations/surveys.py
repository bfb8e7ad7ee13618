"""Requests to all brokers: the results of those that answered, and the errors of the others."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sparklog.client.admin.calls import ItemsFailed
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import NodeId

T = TypeVar("T")

LINES_MAX: Final = 5


class Answered(NamedTuple, Generic[T]):
    """What the brokers that answered have, and the errors of the others by node id, or by the name of an
    internal topic with partitions that have no leader.
    """

    found: T
    errors: Mapping[Any, BrokerError]

    @property
    def silent(self) -> frozenset[NodeId]:
        """The brokers that did not answer in time."""
        return silent_in(self.errors)


def silent_in(errors: Mapping[Any, BrokerError]) -> frozenset[NodeId]:
    """The brokers that did not answer in time, by the errors of a question to all."""
    return frozenset(
        NodeId(node)
        for node, error in errors.items()
        if isinstance(node, int) and error.code is ErrorCode.REQUEST_TIMED_OUT
    )


def listed_by_all(ask: Callable[[], list[T]]) -> Answered[list[T]]:
    """A listing of all brokers. Raises SparklogError if none has answered."""
    try:
        return Answered(ask(), {})
    except ItemsFailed as failed:
        return Answered(sorted(set(chain(*failed.results.values()))), failed.errors)


def described_by_all(ask: Callable[[], Mapping[Any, T]]) -> Answered[Mapping[Any, T]]:
    """A description by item. Raises SparklogError if all items failed."""
    try:
        return Answered(ask(), {})
    except ItemsFailed as failed:
        if not failed.results:
            raise
        return Answered(failed.results, failed.errors)


def missing_of(errors: Mapping[Any, BrokerError]) -> list[str]:
    """What is missing, for a page: the first errors, and how many more there are."""
    lines = [str(error) for error in errors.values()]
    return lines if len(lines) <= LINES_MAX else [*lines[:LINES_MAX], f"and {len(lines) - LINES_MAX} more"]
