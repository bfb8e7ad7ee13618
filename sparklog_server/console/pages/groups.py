"""Groups: members, committed offsets and lag over time; move the offsets with a preview; delete."""

from time import time
from typing import Final, NamedTuple

from starlette.responses import JSONResponse, Response

from sparklog.client.admin import Admin, ItemsFailed
from sparklog.client.admin_groups import GroupOffset
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import TopicPartition
from sparklog_server.cli.groups_reset import relative, require_idle, within_logs
from sparklog_server.cli.positions import offsets_at, position
from sparklog_server.console.ask import DIGITS_MAX, Ask, Refused, get, post
from sparklog_server.console.group_lag import DescribedGroup, described_groups

PER_PAGE: Final = 50
PAGES_MAX: Final = 100_000
LINES_MAX: Final = 10
"""Partitions in the chart of a group, those with the highest lag."""
_INT64_MAX: Final = (1 << 63) - 1


class GroupRow(NamedTuple):
    """A group in the list; the lag is None where it is not known."""

    group: str
    type: str
    state: str
    is_spark: bool
    members: int | None
    lag: int | None


async def groups(ask: Ask) -> Response:
    """The groups whose name contains the search text, `PER_PAGE` at a time, with their lag."""
    search = ask.query("q")
    listed = [
        one
        for one in await ask.admin(lambda admin: admin.list_groups())
        if search.lower() in one.group_id.lower()
    ]
    pages = max(1, -(-len(listed) // PER_PAGE))
    page = min(max(1, ask.number("page", 1, at_most=PAGES_MAX)), pages)
    shown = listed[(page - 1) * PER_PAGE : page * PER_PAGE]
    told = await ask.admin(lambda admin: described_groups(admin, [one.group_id for one in shown]))
    rows = []
    for one in shown:
        known = told.get(one.group_id)
        lags = [row.lag for row in known.rows if row.lag is not None] if known else []
        rows.append(
            GroupRow(
                one.group_id,
                one.type,
                one.state,
                known is not None and known.is_spark,
                None if known is None else len(known.group.members),
                sum(lags) if lags else None,
            )
        )
    return ask.page("groups.html", rows=rows, count=len(listed), page_number=page, pages=pages, search=search)


async def group(ask: Ask) -> Response:
    """One group."""
    return ask.page("group.html", told=await _one(ask, ask.either("name")), error=None)


async def lag(ask: Ask) -> Response:
    """The lag of a group over time, for a chart: the partitions with the most lag now, and the sum of all."""
    told = await _one(ask, ask.either("name"))
    history = ask.session.samples.lag(told.group.group_id, {row.at: row.lag for row in told.rows})
    last = history[-1][2] if history else {}
    top = sorted(last, key=lambda at: (-last[at], at))[:LINES_MAX]
    series: dict[str, list[int | None]] = {at: [lags.get(at) for *_, lags in history] for at in top}
    if len(last) > 1:
        series = {"all": [whole for _, whole, _ in history], **series}
    return JSONResponse(
        {"times": [round(at, 1) for at, *_ in history], "series": series},
        headers={"Cache-Control": "no-store"},
    )


async def preview(ask: Ask) -> Response:
    """What a reset would do: the new offset of each partition beside the present one."""
    name, way, value, topic = ask.either("name"), ask.query("way"), ask.query("value"), ask.query("topic")

    def wanted(admin: Admin) -> tuple[dict[TopicPartition, int], dict[TopicPartition, GroupOffset]]:
        committed = admin.list_group_offsets([name])[name]
        if topic:
            partitions = [
                TopicPartition(topic, one.partition)
                for one in admin.describe_topics([topic])[topic].partitions
            ]
        else:
            partitions = list(committed)
        if not partitions:
            raise Refused("the group has committed nothing: name a topic")
        return _moved(admin, committed, partitions, way, value), committed

    offsets, committed = await ask.admin(wanted)
    return ask.page(
        "group_reset.html", name=name, offsets=offsets, committed=committed, way=way, value=value, topic=topic
    )


async def reset(ask: Ask) -> Response:
    """Commit the offsets of a preview."""
    name = ask.required("name", "the group")
    offsets = {}
    for text in ask.form.get("offset", []):
        at, _, offset = text.rpartition("=")
        topic, _, partition = at.rpartition(":")
        if not (
            topic
            and partition.isdecimal()
            and offset.isdecimal()
            and len(partition) < 10
            and len(offset) <= DIGITS_MAX
        ):
            raise Refused(f"{text[:80]!r} is no TOPIC:PARTITION=OFFSET")
        offsets[TopicPartition(topic, int(partition))] = int(offset)

    def move(admin: Admin) -> None:
        require_idle(admin, name)
        admin.alter_group_offsets(name, offsets)

    try:
        await ask.cluster.change(move)
    except ItemsFailed as failed:
        rest = len(offsets) - len(failed.errors)
        title = f"{len(failed.errors)} of {len(offsets)} partitions were not changed"
        return ask.failed(400, title, f"{failed}. The offsets of the other {rest} are committed.")
    return ask.moved("/group", f"The offsets of {len(offsets)} partitions are committed.", name=name)


async def delete(ask: Ask) -> Response:
    """Delete a group that has no members."""
    name = ask.required("name", "the group")
    if ask.field("confirm") != "yes":
        raise Refused("confirm that the group and its committed offsets are to be deleted")
    await ask.cluster.change(lambda admin: admin.delete_groups([name]))
    return ask.moved("/groups", f"Group {name} is deleted.")


async def _one(ask: Ask, name: str) -> DescribedGroup:
    told = await ask.admin(lambda admin: described_groups(admin, [name]))
    if name not in told:
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    return told[name]


def _moved(
    admin: Admin,
    committed: dict[TopicPartition, GroupOffset],
    partitions: list[TopicPartition],
    way: str,
    value: str,
) -> dict[TopicPartition, int]:
    """The new offsets, by the ways of `sparklog groups reset-offsets`."""
    if way == "shift":
        digits = value.removeprefix("-").removeprefix("+")
        if not digits.isdecimal() or len(digits) > DIGITS_MAX or int(digits) > _INT64_MAX:
            raise Refused(f"{value[:40]!r} is no number of records to move by")
        return relative(admin, committed, partitions, int(value))
    if way == "position":
        found = offsets_at(admin, partitions, position(value, "the position", int(time() * 1000)))
        return within_logs(admin, found)
    raise Refused("say how the offsets move: to a position, or by a number of records")


ROUTES = [
    get("/groups", groups),
    get("/group", group),
    get("/group/lag", lag),
    get("/group/reset", preview),
    post("/group/reset", reset),
    post("/group/delete", delete),
]
