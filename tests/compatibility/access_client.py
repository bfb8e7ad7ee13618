"""A client of any broker that comes from an address of the loopback, and the access rules of that broker."""

import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from sparklog.client.transport.connection import api_of
from sparklog.effects import FileSlice
from sparklog.errors import code_of
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages import (
    create_acls,
    delete_acls,
    describe_acls,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.acls import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

ADMINISTRATOR, CLIENT = "127.0.0.1", "127.0.0.2"
ANONYMOUS = "User:ANONYMOUS"
_KEPT = {
    *("name", "topic", "group", "group_id", "key", "transactional_id", "resource_name"),
    *("topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"),
    *("topic_name", "partition_index", "partition"),
}
_WAIT_S = 30


def rule(
    kind: ResourceType,
    operation: Operation,
    name: str,
    *,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    host: str = CLIENT,
) -> AclRule:
    return AclRule(kind, name, pattern, ANONYMOUS, host, operation, permission)


class Peer:
    """One connection from an address of the loopback."""

    def __init__(self, bootstrap: str, host: str) -> None:
        server, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((server, int(port)), _WAIT_S, (host, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, request: Message, reply: type[Message], version: int | None = None) -> Message:
        """The reply, in the newest version that Kafka 4.3 has released."""
        version = api_of(type(request)).until if version is None else version
        chunks = encode_request(request, version, 1, "matrix")
        self._socket.sendall(b"".join(one.read() if isinstance(one, FileSlice) else one for one in chunks))
        frame = self._read(struct.unpack(">i", self._read(4))[0])
        return decode_reply(reply, version, frame)[1]

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            assert part, "the broker closed the connection"
            found += part
        return found


def outcome(message: Message) -> list[str]:
    """What access decides in a response, sorted: brokers differ in the order of results."""
    return sorted(_told(message))


def _told(message: Message) -> Iterator[str]:
    own = []
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if field == "configs":
            continue  # brokers differ in the settings that they have
        if isinstance(value, list):
            for one in value:
                if isinstance(one, Message):
                    yield from (f"{field}/{told}" for told in _told(one))
        elif (field in _KEPT or field.endswith("error_code")) and value is not None:
            own.append(f"{field}={code_of(value).name if 'error_code' in field else value}")
    if own:
        yield " ".join(own)


def add_rules(admin: Peer, rules: list[AclRule]) -> None:
    creations = [
        create_acls.AclCreation(
            one.resource_type,
            one.resource_name,
            one.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in rules
    ]
    reply = admin.ask(create_acls.CreateAclsRequest(creations), create_acls.CreateAclsResponse)
    assert isinstance(reply, create_acls.CreateAclsResponse)
    assert all(one.error_code == 0 for one in reply.results), reply
    _wait_for(admin, lambda there: set(rules) <= there)


def remove_rules(admin: Peer) -> None:
    """Remove the rules of the client under test."""
    wanted = delete_acls.DeleteAclsFilter(1, None, 1, None, CLIENT, 1, 1)
    admin.ask(delete_acls.DeleteAclsRequest([wanted]), delete_acls.DeleteAclsResponse)
    _wait_for(admin, lambda there: not any(one.host == CLIENT for one in there))


def rules_of(admin: Peer) -> set[AclRule]:
    reply = admin.ask(
        describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1), describe_acls.DescribeAclsResponse
    )
    assert isinstance(reply, describe_acls.DescribeAclsResponse)
    assert reply.error_code == 0, reply
    return {
        AclRule(
            one.resource_type,
            one.resource_name,
            one.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for one in reply.resources
        for acl in one.acls
    }


def _wait_for(admin: Peer, is_there: Any) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not is_there(rules_of(admin)):
        assert time.monotonic() < deadline, "the rules do not take effect"
