"""The authorization check that every handler makes before it acts.

    allow ──► a request needs this operation: a refusal is written to the audit log
    may ────► the handler filters, lists operations, or has another way: it is not

Without an authorizer every check allows. Until the metadata is loaded, a check raises NotLoaded, which closes
the session: a refusal would be final for a client.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparklog_server.broker.session import Call
from sparklog_server.config.access_settings import AccessSettings
from sparklog_server.coordinator.command import Command
from sparklog_server.metadata.acls import CLUSTER_NAME, WILDCARD, Operation
from sparklog_server.metadata.acls import ResourceType as Resource

if TYPE_CHECKING:
    from sparklog_server.security.audit import Audit
    from sparklog_server.security.authorizer import Authorizer

__all__ = ["CLUSTER_NAME", "Allow", "Authorization", "Operation", "Resource"]

Allow = Callable[[str, Operation, Resource, str], bool]
"""Decides in place of an authorizer whether a principal may perform the operation on the resource."""

_NAME_MAX: Final = 256
"""The characters of a resource's name in a line of the audit log; a topic has at most 249."""

_Decide = Callable[[str, str, Operation, Resource, str, tuple[str, ...]], bool]
"""The same by principal, host, operation, type and name of the resource, and groups of the principal."""


class Authorization:
    """The decisions of one broker, and their audit log. `authorizer` follows the published image; None
    without one.
    """

    def __init__(
        self,
        authorizer: "Authorizer | None" = None,
        audit: "Audit | None" = None,
        decide: _Decide | None = None,
    ) -> None:
        self.authorizer = authorizer
        self.audit = audit
        self._decide = decide

    @staticmethod
    def of(settings: AccessSettings, allow: Allow | None) -> "Authorization":
        """By `allow`, if it is given, else by the settings."""
        if allow is not None:
            decides = allow  # mypy forgets that it is not None

            def decide(
                principal: str,
                host: str,
                operation: Operation,
                resource: Resource,
                name: str,
                groups: tuple[str, ...],
            ) -> bool:
                return decides(principal, operation, resource, name)

            return Authorization(decide=decide)
        if not settings.has_authorizer:
            return Authorization()
        # At their only use: a start without an authorizer imports neither.
        from sparklog_server.security.audit import Audit
        from sparklog_server.security.authorizer import Authorizer

        authorizer = Authorizer(
            settings.super_users, allows_without_rules=settings.allow_everyone_if_no_acl_found
        )
        audit = Audit(
            interval_ms=settings.sparklog_audit_interval_ms,
            logs_allowed=settings.sparklog_audit_allowed,
        )
        return Authorization(authorizer, audit, authorizer.authorize)

    def allow(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the caller is authorized for this operation, which its request needs."""
        decide = self._decide
        if decide is None:
            return True
        who = call.client
        is_allowed = decide(who.principal, who.host, operation, resource, name, who.groups)
        audit = self.audit
        if audit is not None and (not is_allowed or audit.logs_allowed):
            self._log(call, operation, resource, name, is_allowed=is_allowed)
        return is_allowed

    def may(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the caller is authorized for this operation, which the request does not depend on."""
        decide = self._decide
        if decide is None:
            return True
        who = call.client
        return decide(who.principal, who.host, operation, resource, name, who.groups)

    def allow_some(self, call: Call, operation: Operation, resource: Resource) -> bool:
        """Whether there may be a resource of that type for which the caller is authorized (KIP-679)."""
        authorizer = self.authorizer
        if authorizer is None:
            return self.allow(call, operation, resource, "")
        who = call.client
        is_allowed = authorizer.authorize_by_resource_type(
            who.principal, who.host, operation, resource, who.groups
        )
        if self.audit is not None and (not is_allowed or self.audit.logs_allowed):
            self._log(call, operation, resource, WILDCARD, is_allowed=is_allowed)
        return is_allowed

    def describes(self, command: Command, topic: str) -> bool:
        """Whether the sender of the command may describe the topic."""
        decide = self._decide
        if decide is None:
            return True
        host = command.client_host.removeprefix("/")
        return decide(command.principal, host, Operation.DESCRIBE, Resource.TOPIC, topic, command.groups)

    def _log(
        self, call: Call, operation: Operation, resource: Resource, name: str, *, is_allowed: bool
    ) -> None:
        from sparklog_server.security.audit import Decision

        assert self.audit is not None
        who = call.client
        self.audit.decided(
            Decision(
                who.principal,
                who.host,
                Operation(operation).name,
                Resource(resource).name,
                name[:_NAME_MAX],
                is_allowed,
            )
        )
