"""A member of a classic group: its identity, its protocols, and its parked request."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from sparklog.wire.messages.join_group import JoinGroupRequestProtocol
from sparklog_server.coordinator.command import Token
from sparklog_server.coordinator.timers import Timer


class Due(Enum):
    """The kinds of deadlines of a classic group."""

    PHASE = auto()
    """The time in which members must join, or sync, depending on the state of the group."""
    SESSION = auto()
    """The session of a member, or of a member id that was given to a client, expires."""


class Deadline(NamedTuple):
    """The subject of a timer: the group, and the member if the deadline belongs to one."""

    due: Due
    group_id: str
    member_id: str = ""


class Abandoned:
    """The token of a request whose client has disconnected. The member counts as waiting, and no response is
    sent.
    """


ABANDONED = Abandoned()


class ClassicMember:
    """One member. `join_token` and `sync_token` are the tokens of its parked requests; None if it
    has none.

    One class, as Kafka's ClassicGroupMember is: what a member is created with is its part of the record of
    its group, and the timer of its session.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        session: Timer[Deadline],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.session = session
        self.join_token: Token | Abandoned = None
        self.sync_token: Token | Abandoned = None
        self.is_new = False

    @property
    def is_silent_by_right(self) -> bool:
        """Whether the member has a parked request, so that it sends no heartbeats. A new member must still
        send a request before its session expires.
        """
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def has_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Whether the member named the same protocols in the same order when it last joined."""
        return self.protocols == protocols and list(self.protocols) == list(protocols)


def by_name(protocols: Iterable[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """The protocols by name, in the order of preference; of two with the same name the first counts, as in
    Kafka.
    """
    named: dict[str, bytes] = {}
    for protocol in protocols:
        named.setdefault(protocol.name, protocol.metadata)
    return named
