"""A part of `settings`: each field is the definition of a broker key."""

from typing import Annotated, Final

import msgspec

from sparklog.errors import SettingsError

from .keys import INT_MAX, Key, Kind, invalid
from .keys import boolean as _boolean
from .keys import integer as _int
from .keys import text as _text

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who may do what, and which decisions are logged."""

    authorizer_class_name: Annotated[
        str,
        Key(
            "authorizer.class.name",
            Kind.STRING,
            f"The authorizer: `{STANDARD_AUTHORIZER}`, by the access rules in the metadata. "
            "When not set, every client may do everything.",
        ),
    ] = ""
    super_users_given: Annotated[
        str | None,
        _text(
            "super.users",
            "The principals that may do everything, separated by semicolons, as `User:admin;User:node-1`. "
            "With an authorizer, the principals of all nodes must be among them.",
        ),
    ] = None
    allow_everyone_if_no_acl_found: Annotated[
        bool,
        _boolean(
            "allow.everyone.if.no.acl.found",
            "Whether every principal may access a resource for which there is no access rule.",
        ),
    ] = False
    sparklog_audit_allowed: Annotated[
        bool,
        _boolean(
            "sparklog.audit.allowed",
            "Log allowed requests to the audit log too. Denied requests are always logged.",
        ),
    ] = False
    sparklog_audit_interval_ms: Annotated[
        int,
        _int(
            "sparklog.audit.interval.ms",
            "The audit log has at most one line for a principal and a resource in this time; the next line "
            "has the number of decisions in between.",
            0,
            INT_MAX,
        ),
    ] = 10_000
    sparklog_audit_topic_enable: Annotated[
        bool,
        _boolean(
            "sparklog.audit.topic.enable",
            "Write each line of the audit log to the internal topic `__sparklog_audit` too. It is created at "
            "the first line, with a retention of 7 days and `offsets.topic.replication.factor` replicas.",
        ),
    ] = False

    @property
    def has_authorizer(self) -> bool:
        """Whether access rules decide who may do what."""
        return bool(self.authorizer_class_name)

    @property
    def super_users(self) -> frozenset[str]:
        """The principals that may do everything."""
        return frozenset(one for text in (self.super_users_given or "").split(";") if (one := text.strip()))


def check_access(settings: AccessSettings) -> None:
    """Raises SettingsError for another authorizer, and for a super user that is no principal."""
    name = settings.authorizer_class_name
    if name not in ("", STANDARD_AUTHORIZER):
        raise invalid(
            "authorizer.class.name", name, f"Java classes cannot be loaded; use {STANDARD_AUTHORIZER}"
        )
    for user in sorted(settings.super_users):
        kind, colon, own = user.partition(":")
        if not (kind and colon and own):
            raise SettingsError(
                f"Invalid value {user} for configuration super.users: expected a principal in the form "
                "type:name, such as User:admin"
            )
