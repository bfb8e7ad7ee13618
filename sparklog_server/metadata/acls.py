"""Access rules (ACLs) in the image, and the filters that select them (KIP-11, KIP-140, KIP-290).

A rule allows or denies an operation of a principal, from a host, on the resources of a pattern. The numbers
are Kafka's.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import msgspec

from sparklog.model import Uuid

from .records import AccessControlEntryRecord, RemoveAccessControlEntryRecord


class ResourceType(IntEnum):
    """The type of a resource."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule names its resources; ANY and MATCH are only for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operation; ANY is only for filters, ALL only for rules."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """The effect of a rule; ANY is only for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


ANY: Final = 1
WILDCARD: Final = "*"
"""As a literal resource name, any resource; as a host, any host."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class AclRule(msgspec.Struct, frozen=True, gc=False):
    """One rule. Numbers that this release does not know are kept; such a rule decides nothing."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def __str__(self) -> str:
        resource = (
            f"{_name_of(ResourceType, self.resource_type)}:"
            f"{_name_of(PatternType, self.pattern_type)}:{self.resource_name}"
        )
        permission = _name_of(Permission, self.permission_type)
        operation = _name_of(Operation, self.operation)
        return f"{permission} {operation} on {resource} for {self.principal} from host {self.host}"


def _name_of(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


Acls = Mapping[Uuid, AclRule]
"""The rules by their ids."""


class AclFilter(msgspec.Struct, frozen=True):
    """Selects rules. None matches any text, ANY any number; the pattern type MATCH selects every pattern
    that covers the resource of that name.
    """

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY

    def selects(self, rule: AclRule) -> bool:
        """Whether the rule passes every part of the filter."""
        return (
            self.resource_type in (ANY, rule.resource_type)
            and self.pattern_type in (ANY, PatternType.MATCH, rule.pattern_type)
            and self.operation in (ANY, rule.operation)
            and self.permission_type in (ANY, rule.permission_type)
            and (self.principal is None or self.principal == rule.principal)
            and (self.host is None or self.host == rule.host)
            and (self.resource_name is None or self._names(rule, self.resource_name))
        )

    def _names(self, rule: AclRule, name: str) -> bool:
        if self.pattern_type != PatternType.MATCH or name == rule.resource_name:
            return name == rule.resource_name
        return covers(rule.pattern_type, rule.resource_name, name)


def covers(pattern_type: int, pattern: str, name: str) -> bool:
    """Whether a rule of this pattern concerns the resource of that name."""
    if pattern_type == PatternType.LITERAL:
        return pattern in (name, WILDCARD)
    return pattern_type == PatternType.PREFIXED and name.startswith(pattern)


def replay(
    acls: dict[Uuid, AclRule], record: AccessControlEntryRecord | RemoveAccessControlEntryRecord
) -> Uuid:
    """Apply one record to the table and return the id that it changed."""
    acl_id = Uuid(bytes(record.id))
    if isinstance(record, RemoveAccessControlEntryRecord):
        acls.pop(acl_id, None)
    else:
        acls[acl_id] = AclRule(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
    return acl_id


def record_of(acl_id: Uuid, rule: AclRule) -> AccessControlEntryRecord:
    """The record that adds the rule."""
    return AccessControlEntryRecord(
        acl_id,
        rule.resource_type,
        rule.resource_name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
