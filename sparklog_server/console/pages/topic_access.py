"""Who reads a topic, and who may: its groups with their lag, and the access rules that are for it."""

from typing import Final, NamedTuple

from starlette.responses import Response

from sparklog.client.admin.acls import AclFilter, AclRule
from sparklog.client.admin.admin import Admin
from sparklog.errors import BrokerError, ErrorCode
from sparklog_server.console.ask import Ask, get
from sparklog_server.operations.lag import DescribedGroup, described_groups
from sparklog_server.operations.surveys import listed_by_all, missing_of

GROUPS_MAX: Final = 500
"""Groups that are asked for their offsets."""


class ReaderRow(NamedTuple):
    """A group that reads the topic; the lag is None where it is not known."""

    group: str
    state: str
    is_spark: bool
    members: int
    partitions: int
    lag: int | None


async def groups(ask: Ask) -> Response:
    """The groups with a committed offset or an assignment in the topic."""
    topic = ask.part("topic")

    def readers(admin: Admin) -> tuple[list[DescribedGroup], int, list[str]]:
        admin.describe_topics([topic])
        listing = listed_by_all(admin.list_groups)
        names = [one.group_id for one in listing.found]
        described, errors = described_groups(admin, names[:GROUPS_MAX], listing.silent)
        return list(described.values()), len(names), missing_of({**listing.errors, **errors})

    described, count, missing = await ask.admin(readers)
    rows = [row for one in described if (row := _reader(one, topic)) is not None]
    asked = min(count, GROUPS_MAX)
    return ask.page(
        "topic_groups.html", topic=topic, rows=rows, asked=asked, left_out=count - asked, missing=missing
    )


def _reader(described: DescribedGroup, topic: str) -> ReaderRow | None:
    own = [row for row in described.rows if row.at.topic == topic]
    if not own:
        return None
    lags = [row.lag for row in own if row.lag is not None]
    members = {row.member.member_id for row in own if row.member is not None}
    group = described.group
    return ReaderRow(
        group.group_id, group.state, described.is_spark, len(members), len(own), sum(lags) if lags else None
    )


async def acls(ask: Ask) -> Response:
    """The access rules that are for the topic."""
    topic = ask.part("topic")
    wanted = AclFilter("topic", topic, "match")

    def asked(admin: Admin) -> list[AclRule]:
        admin.describe_topics([topic])
        return admin.describe_acls(wanted)

    rules: list[AclRule] = []
    is_disabled = False
    try:
        rules = await ask.admin(asked)
    except BrokerError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        is_disabled = True
    return ask.page("topic_acls.html", topic=topic, rules=rules, is_disabled=is_disabled)


ROUTES = [get("/topics/{topic}/groups", groups), get("/topics/{topic}/acls", acls)]
