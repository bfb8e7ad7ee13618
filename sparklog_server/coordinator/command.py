"""A command: a wire request, and the connection's facts about its sender."""

import msgspec

from sparklog.wire.schema import Message


class Command(msgspec.Struct, frozen=True):
    """`request` in version `version` of its API, from a client named `client_id` at `client_host` (as
    Kafka writes it: /127.0.0.1).

    `principal` is who the client has shown to be; `proof` is for a request within a transaction, and goes
    with its records.
    """

    request: Message
    version: int
    client_id: str = ""
    client_host: str = ""
    principal: str = "User:ANONYMOUS"
    proof: object = None
