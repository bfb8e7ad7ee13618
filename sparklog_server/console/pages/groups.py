"""Groups: members, committed offsets and lag over time; move the offsets with a preview; delete."""

from typing import Final, NamedTuple

from starlette.responses import JSONResponse, Response

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.groups import GroupOffset
from sparklog.client.admin.positions import INT64_MAX, Position, offsets_at
from sparklog.errors import ErrorCode
from sparklog.model import TopicPartition
from sparklog_server.console.ask import DIGITS_MAX, Absent, Ask, Refused, get, position_in, post
from sparklog_server.operations.lag import DescribedGroup, described_groups, log_ends
from sparklog_server.operations.refused import OperationRefused
from sparklog_server.operations.resets import relative, require_idle, within_logs
from sparklog_server.operations.similar_names import absent
from sparklog_server.operations.surveys import listed_by_all, missing_of

PER_PAGE: Final = 50
PAGES_MAX: Final = 100_000
LINES_MAX: Final = 10
"""Partitions in the chart of a group, those with the highest lag."""


class GroupRow(NamedTuple):
    """A group in the list; the lag is None where it is not known."""

    group: str
    type: str
    state: str
    is_spark: bool
    members: int | None
    lag: int | None


class PreviewRow(NamedTuple):
    """The offset that a reset would commit, or what was typed for it; those of a partition without a
    leader are None.
    """

    at: TopicPartition
    offset: int | str
    committed: int | None
    begin: int | None
    end: int | None


class Preview(NamedTuple):
    """A reset before it is committed."""

    rows: list[PreviewRow]
    members: int


async def groups(ask: Ask) -> Response:
    """The groups whose name contains the search text, `PER_PAGE` at a time, with their lag."""
    search = ask.query("q")
    listing = await ask.admin(lambda admin: listed_by_all(admin.list_groups))
    listed = [one for one in listing.found if search.lower() in one.group_id.lower()]
    pages = max(1, -(-len(listed) // PER_PAGE))
    page = min(max(1, ask.number("page", 1, at_most=PAGES_MAX)), pages)
    shown = listed[(page - 1) * PER_PAGE : page * PER_PAGE]
    names = [one.group_id for one in shown]
    described, errors = await ask.admin(lambda admin: described_groups(admin, names, listing.silent))
    rows = []
    for one in shown:
        known = described.get(one.group_id)
        rows.append(
            GroupRow(
                one.group_id,
                one.type,
                one.state,
                known is not None and known.is_spark,
                None if known is None else len(known.group.members),
                None if known is None else known.lag,
            )
        )
    return ask.page(
        "groups.html",
        rows=rows,
        count=len(listed),
        page_number=page,
        pages=pages,
        search=search,
        missing=missing_of(listing.errors) + missing_of(errors),
    )


async def group(ask: Ask) -> Response:
    """One group."""
    return ask.page(
        "group.html",
        described=await _one(ask, ask.either("name")),
        sent={name: ask.query(name) for name in ("topic", "way", "value")},
    )


async def lag(ask: Ask) -> Response:
    """The lag of a group over time, for a chart: the partitions with the most lag now, and the sum of all."""
    described = await _one(ask, ask.either("name"))
    history = ask.session.samples.lag(described.group.group_id, {row.at: row.lag for row in described.rows})
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
    """What a reset would do: the new offset of each partition, which can be edited."""
    name, topic = ask.either("name"), ask.query("topic")
    edited = list(zip(ask.form.get("at", []), ask.form.get("offset", []), strict=False))
    existing = await ask.cluster.topics() if topic else {}
    if topic and topic not in existing:
        ask.wrong(Refused(absent("topic", topic, existing), "topic"))
        return await group(ask)

    def previewed(admin: Admin) -> Preview:
        committed = admin.list_group_offsets([name])[name]
        if edited:
            offsets: dict[TopicPartition, int | str] = {_partition(at): offset for at, offset in edited}
        else:
            partitions = list(committed)
            if topic:
                partitions = [TopicPartition(topic, one.partition) for one in existing[topic].partitions]
            if not partitions:
                raise Refused("the group has committed nothing: name a topic", "topic")
            offsets = {**_moved(admin, committed, partitions, ask.query("way"), ask.query("value"))}
        begins, ends = _logs(admin, list(offsets))
        rows = [
            PreviewRow(
                at, offset, committed[at].offset if at in committed else None, begins.get(at), ends.get(at)
            )
            for at, offset in sorted(offsets.items())
        ]
        return Preview(rows, members_of(admin, name))

    try:
        shown = await ask.admin(previewed)
    except OperationRefused as error:
        if edited:
            raise
        ask.wrong(error)
        return await group(ask)
    return ask.page("group_reset.html", name=name, rows=shown.rows, members=shown.members)


async def reset(ask: Ask) -> Response:
    """Commit the offsets of a preview, as they were edited."""
    name, places = ask.required("name", "the group"), ask.form.get("at", [])
    texts = ask.form.get("offset", [])
    if not places or len(places) != len(texts):
        raise Refused("a reset needs an offset for each of its partitions")
    offsets = {}
    for at, text in zip(places, texts, strict=True):
        text = text.strip()
        if not text.isdecimal() or len(text) > DIGITS_MAX or int(text) > INT64_MAX:
            raise Refused(f"{text[:40]!r} is no offset", f"offset.{at}")
        offsets[_partition(at)] = int(text)

    def move(admin: Admin) -> None:
        require_idle(admin, name)
        begins, ends = _logs(admin, list(offsets))
        for at, offset in offsets.items():
            if at in ends and not begins[at] <= offset <= ends[at]:
                raise Refused(
                    f"{offset} is outside the log, which has {begins[at]} to {ends[at]}",
                    f"offset.{at.topic}:{at.partition}",
                )
        admin.alter_group_offsets(name, offsets)

    try:
        await ask.cluster.change(move)
    except ItemsFailed as failed:
        rest = len(offsets) - len(failed.errors)
        title = f"{len(failed.errors)} of {len(offsets)} partitions were not changed"
        return ask.failed(400, title, f"{failed}. The offsets of the other {rest} are committed.")
    return ask.moved("/group", f"The offsets of {len(offsets)} partitions are committed.", name=name)


def members_of(admin: Admin, name: str) -> int:
    """The members of a group: while it has any, its offsets cannot be moved. None of a group that is new."""
    try:
        return len(admin.describe_groups([name])[name].members)
    except ItemsFailed as failed:
        if failed.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return 0
        raise


def _partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition(":")
    if not topic or not partition.isdecimal() or len(partition) >= 10:
        raise Refused(f"{text[:80]!r} is no TOPIC:PARTITION")
    return TopicPartition(topic, int(partition))


def _logs(
    admin: Admin, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The begins and the ends of those that have a leader."""
    ends = {at: end for at, end in log_ends(admin, partitions).items() if end is not None}
    return offsets_at(admin, list(ends), Position("earliest")) if ends else {}, ends


async def delete(ask: Ask) -> Response:
    """Delete a group that has no members."""
    name = ask.required("name", "the group")
    if ask.field("confirm") != "yes":
        raise Refused("confirm that the group and its committed offsets are to be deleted", "confirm")
    await ask.cluster.change(lambda admin: admin.delete_groups([name]))
    return ask.moved("/groups", f"Group {name} is deleted.")


async def _one(ask: Ask, name: str) -> DescribedGroup:
    described, errors = await ask.admin(lambda admin: described_groups(admin, [name]))
    if name not in described:
        if (error := errors.get(name)) is not None:
            raise error
        listing = await ask.admin(lambda admin: listed_by_all(admin.list_groups))
        raise Absent("group", name, [one.group_id for one in listing.found], "/group?name=")
    return described[name]


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
        if not digits.isdecimal() or len(digits) > DIGITS_MAX or int(digits) > INT64_MAX:
            raise Refused(f"{value[:40]!r} is no number of records to move by", "value")
        return relative(admin, committed, partitions, int(value))
    if way == "position":
        found = offsets_at(admin, partitions, position_in(value, "value"))
        return within_logs(admin, found)
    raise Refused("say how the offsets move: to a position, or by a number of records", "way")


ROUTES = [
    get("/groups", groups),
    get("/group", group),
    get("/group/lag", lag),
    get("/group/reset", preview),
    post("/group/reset", reset, form=preview),
    post("/group/delete", delete, form=group),
]
