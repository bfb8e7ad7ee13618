"""`sparklog groups`: list, describe with lag and members, move and delete committed offsets."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import click

from sparklog_server.cli.cluster_names import group_names, topic_names
from sparklog_server.cli.groups_reset import reset_offsets
from sparklog_server.cli.options import (
    admin,
    as_json,
    listed,
    partitions_named,
    print_json,
    print_table,
    reaches_cluster,
    report,
    say,
)
from sparklog_server.cli.watching import can_watch

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.groups import GroupDescription, GroupMember, GroupOffset
    from sparklog.errors import BrokerError
    from sparklog.model import NodeId, TopicPartition

LAG_COLUMNS = ("group", "topic", "partition", "committed", "log end", "lag", "member", "host", "client id")
MEMBER_COLUMNS = ("group", "member", "instance", "host", "client id", "epoch", "partitions", "assigned")
STATE_COLUMNS = ("group", "type", "state", "protocol", "assignor", "coordinator", "epoch", "members")


@click.group()
def groups() -> None:
    """List and describe groups, and move or delete their committed offsets."""


groups.add_command(reset_offsets)


@groups.command(name="list")
@click.option(
    "--state",
    "states",
    metavar="STATE",
    multiple=True,
    help="List only groups in this state: Stable, Empty, PreparingRebalance, Assigning … Repeatable.",
)
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="List only groups of this type: classic, consumer, share or streams. Repeatable.",
)
@reaches_cluster
@as_json
@can_watch
def list_groups(states: tuple[str, ...], types: tuple[str, ...], is_json: bool) -> int:
    """List the groups with their type and state.

    Exits with 1 if a broker does not answer: the groups of the others are listed.
    """
    from sparklog_server.cli.answered import listed_by_all, tell_missing

    with admin(awaits_silent=False) as cluster:
        found, missing = listed_by_all(lambda: cluster.list_groups(states=states, types=types))
    if is_json:
        print_json(
            [
                {"group": g.group_id, "type": g.type, "state": g.state, "protocol_type": g.protocol_type}
                for g in found
            ]
        )
        return tell_missing(missing)
    nothing = "there are no such groups" if states or types else "there are no groups"
    print_table(
        ["group", "type", "state", "protocol"],
        [[g.group_id, g.type, g.state, g.protocol_type] for g in found],
        empty="" if missing else nothing,
    )
    return tell_missing(missing)


@groups.command()
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=group_names)
@click.option(
    "--members", is_flag=True, help="Show the members and their assignments instead of the offsets."
)
@click.option("--state", is_flag=True, help="Show state, assignor and coordinator instead of the offsets.")
@reaches_cluster
@as_json
@can_watch
def describe(names: tuple[str, ...], members: bool, state: bool, is_json: bool) -> int:
    """Show committed offsets, lag and the assigned members, of all groups if no GROUP is given.

    Exits with 1 if a group is not described, or a broker does not answer: the others are shown.
    """
    from sparklog_server.cli.answered import Answered, described_by_all, listed_by_all, tell_missing

    if members and state:
        raise click.UsageError(
            "--members and --state show different tables: leave one out, or take --json, which has both"
        )
    with admin(awaits_silent=False) as cluster:
        listing = Answered([], {}) if names else listed_by_all(cluster.list_groups)
        wanted = names or [group.group_id for group in listing.found]
        described, undescribed = described_by_all(lambda: cluster.describe_groups(wanted))
        committed: Mapping[str, Mapping[TopicPartition, GroupOffset]] = {}
        unread: Mapping[str, BrokerError] = {}
        if is_json or not (members or state):
            committed, unread = described_by_all(lambda: cluster.list_group_offsets(list(described)))
            described = {name: group for name, group in described.items() if name in committed}
        ends = log_ends(cluster, partitions_of(described, committed), listing.silent)
        missing = {**listing.errors, **undescribed, **unread}
    if is_json:
        print_json([_as_json(group, committed[group.group_id], ends) for group in described.values()])
    elif state:
        print_table(
            STATE_COLUMNS,
            [
                [
                    g.group_id,
                    g.type,
                    g.state,
                    g.protocol_type,
                    g.assignor,
                    g.coordinator,
                    _none_below(g.epoch),
                    len(g.members),
                ]
                for g in described.values()
            ],
        )
    elif members:
        rows: list[list[object]] = [
            [
                g.group_id,
                m.member_id,
                m.instance_id,
                m.host,
                m.client_id,
                _none_below(m.epoch),
                len(m.assignment),
                _assignment_text(m.assignment),
            ]
            for g in described.values()
            for m in g.members
        ]
        print_table(MEMBER_COLUMNS, rows, empty="" if missing else "no group has members")
    else:
        rows = [row for g in described.values() for row in _lag_rows(g, committed[g.group_id], ends)]
        nothing = "no offsets are committed" if described else "there are no groups"
        print_table(LAG_COLUMNS, rows, empty="" if missing else nothing)
        for group in described.values():
            if not group.members:
                say(f"group {group.group_id} has no members")
    return tell_missing(missing)


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@reaches_cluster
def delete(names: tuple[str, ...]) -> None:
    """Delete groups that have no members, with their committed offsets."""
    with admin() as cluster:
        cluster.delete_groups(names)
    report(f"deleted {listed(names)}")


@groups.command(name="delete-offsets")
@click.argument("group", shell_complete=group_names)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    multiple=True,
    required=True,
    help="Select partitions. Repeatable.",
    shell_complete=topic_names,
)
@reaches_cluster
def delete_offsets(group: str, topics: tuple[str, ...]) -> None:
    """Delete the committed offsets of GROUP for partitions to which none of its members subscribes."""
    with admin() as cluster:
        cluster.describe_groups([group])  # the refusal of an absent group suggests similar ones
        partitions = partitions_named(cluster, topics)
        cluster.delete_group_offsets(group, partitions)
    report(f"deleted the offsets of {listed(partitions)} in {group}")


@groups.command(name="remove-members")
@click.argument("group", shell_complete=group_names)
@click.option("--member", "members", metavar="ID", multiple=True, help="Select by member id. Repeatable.")
@click.option(
    "--instance",
    "instances",
    metavar="ID",
    multiple=True,
    help="Select a static member by group.instance.id. Repeatable.",
)
@reaches_cluster
def remove_members(group: str, members: tuple[str, ...], instances: tuple[str, ...]) -> None:
    """Remove members from a classic group, for example static members that will not return."""
    if not members and not instances:
        raise click.UsageError("select members with --member or --instance")
    with admin() as cluster:
        cluster.describe_groups([group])  # the refusal of an absent group suggests similar ones
        cluster.remove_group_members(group, members, instance_ids=instances)
    report(f"removed {listed((*members, *instances))} from {group}")


# -- lag -----------------------------------------------------------------------------------------------------


def partitions_of(
    groups: "Mapping[str, GroupDescription]", committed: "Mapping[str, Mapping[TopicPartition, GroupOffset]]"
) -> "list[TopicPartition]":
    """The partitions that groups have committed offsets for or are assigned, in order."""
    if not committed:
        return []
    found = {partition for offsets in committed.values() for partition in offsets}
    found |= {
        partition for group in groups.values() for member in group.members for partition in member.assignment
    }
    return sorted(found)


def log_ends(
    cluster: "Admin", partitions: "list[TopicPartition]", silent: "Collection[NodeId]" = ()
) -> "dict[TopicPartition, int | None]":
    """Log end offsets: None if the partition has no leader, or a silent one, which is not asked. A partition
    of a deleted topic has none.
    """
    from sparklog.client.admin.admin import LATEST
    from sparklog.client.failures import UnknownTopic
    from sparklog.model import TopicPartition

    names = list(dict.fromkeys(partition.topic for partition in partitions))
    try:
        topics = cluster.describe_topics(names)
    except UnknownTopic:
        topics = cluster.list_topics(include_internal=True)
    leaders = {TopicPartition(t.name, p.partition): p.leader for t in topics.values() for p in t.partitions}
    ends: dict[TopicPartition, int | None] = dict.fromkeys(at for at in partitions if at in leaders)
    asked = {at: LATEST for at in ends if leaders[at] >= 0 and leaders[at] not in silent}
    if asked:
        ends |= {at: told.offset for at, told in cluster.list_offsets(asked).items()}
    return ends


def rows_of(
    group: "GroupDescription", committed: "Mapping[TopicPartition, GroupOffset]"
) -> "list[tuple[TopicPartition, GroupMember | None]]":
    """The partitions of a group with the member that is assigned each."""
    readers = {partition: member for member in group.members for partition in member.assignment}
    return [(partition, readers.get(partition)) for partition in sorted({*committed, *readers})]


def lag_of(offset: "GroupOffset | None", end: int | None) -> int | None:
    """Records still to read; never negative, because the log end offset was read before the commit."""
    return None if offset is None or end is None else max(0, end - offset.offset)


def _lag_rows(
    group: "GroupDescription",
    committed: "Mapping[TopicPartition, GroupOffset]",
    ends: "Mapping[TopicPartition, int | None]",
) -> list[list[object]]:
    return [
        [
            group.group_id,
            at.topic,
            at.partition,
            None if at not in committed else committed[at].offset,
            ends.get(at),
            lag_of(committed.get(at), ends.get(at)),
            *((None, None, None) if member is None else (member.member_id, member.host, member.client_id)),
        ]
        for at, member in rows_of(group, committed)
    ]


def _none_below(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


def _assignment_text(partitions: "Iterable[TopicPartition]") -> str:
    """`topic(0,1)`, as in Kafka's tool."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return " ".join(f"{topic}({listed(numbers)})" for topic, numbers in topics.items())


def _as_json(
    group: "GroupDescription",
    committed: "Mapping[TopicPartition, GroupOffset]",
    ends: "Mapping[TopicPartition, int | None]",
) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "offsets": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "committed": None if at not in committed else committed[at].offset,
                "metadata": None if at not in committed else committed[at].metadata,
                "log_end": ends.get(at),
                "lag": lag_of(committed.get(at), ends.get(at)),
                "member": None if member is None else member.member_id,
            }
            for at, member in rows_of(group, committed)
        ],
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "host": member.host,
                "client_id": member.client_id,
                "epoch": member.epoch,
                "rack": member.rack,
                "subscribed_topics": member.subscribed_topics,
                "subscribed_regex": member.subscribed_regex,
                "assignment": [list(partition) for partition in member.assignment],
                "target_assignment": [list(partition) for partition in member.target_assignment],
            }
            for member in group.members
        ],
    }
