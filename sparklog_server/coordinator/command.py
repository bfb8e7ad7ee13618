"""A command: a wire request, the facts about its connection, and the token that identifies its reply."""

from typing import Protocol

import msgspec

from sparklog.errors import ErrorCode
from sparklog.wire.schema import Message

from .txn.events import MarkersDue, VerdictDue


class Sender(Protocol):
    """The sender of a command: exactly one of these is called, once."""

    def answered(self, reply: Message) -> None:
        """Take the reply of the shard; every record that it depends on is committed."""

    def refused(self, code: ErrorCode) -> None:
        """There will be no reply: the shard was dropped, or its log refused the records."""


Token = Sender | MarkersDue | VerdictDue | None
"""The target of an answer: a sender, a request of a shard to the broker, or None for a command of the broker
that needs no answer. Shards compare tokens by identity.
"""


class Command(msgspec.Struct, frozen=True):
    """`request` in version `version` of its API, from a client named `client_id` at `client_host` (as
    Kafka writes it: /127.0.0.1).

    `principal` is the authenticated identity of the client, which is in `groups`; `proof` belongs to a
    request within a transaction, and is appended with its records.
    """

    request: Message
    version: int
    client_id: str = ""
    client_host: str = ""
    principal: str = "User:ANONYMOUS"
    proof: object = None
    groups: tuple[str, ...] = ()
