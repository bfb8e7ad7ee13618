"""`sparklog groups`: list, describe with lag and members, move and delete committed offsets."""

from collections.abc import Iterable

import click

from sparklog.client.admin.admin import ItemsFailed
from sparklog.client.admin.groups import GroupDescription
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, group_names, partitions_named, topic_names
from sparklog_server.cli.groups_reset import reset_offsets
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, listed, print_json, print_table, report, say, tell_missing
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.lag import LagRow, described_groups
from sparklog_server.operations.surveys import Answered, described_by_all, listed_by_all

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
    if members and state:
        raise click.UsageError(
            "--members and --state show different tables: leave one out, or take --json, which has both"
        )
    with admin(awaits_silent=False) as cluster:
        listing = Answered([], {}) if names else listed_by_all(cluster.list_groups)
        wanted = list(names) or [group.group_id for group in listing.found]
        if is_json or not (members or state):
            with_lag, errors = described_groups(cluster, wanted, listing.silent, must_exist=True)
            shown = [one for name, one in with_lag.items() if name not in errors]
            if errors and not shown:
                raise ItemsFailed(errors, {})
            described, missing = [one.group for one in shown], {**listing.errors, **errors}
        else:
            found, undescribed = described_by_all(lambda: cluster.describe_groups(wanted))
            shown, described, missing = [], list(found.values()), {**listing.errors, **undescribed}
    if is_json:
        print_json([_as_json(one.group, one.rows) for one in shown])
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
                for g in described
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
            for g in described
            for m in g.members
        ]
        print_table(MEMBER_COLUMNS, rows, empty="" if missing else "no group has members")
    else:
        rows = [_lag_cells(one.group.group_id, row) for one in shown for row in one.rows]
        nothing = "no offsets are committed" if described else "there are no groups"
        print_table(LAG_COLUMNS, rows, empty="" if missing else nothing)
        for group in described:
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


# -- printing ------------------------------------------------------------------------------------------------


def _lag_cells(group: str, row: LagRow) -> list[object]:
    member = row.member
    return [
        group,
        row.at.topic,
        row.at.partition,
        row.committed,
        row.end,
        row.lag,
        *((None, None, None) if member is None else (member.member_id, member.host, member.client_id)),
    ]


def _none_below(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


def _assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """`topic(0,1)`, as in Kafka's tool."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return " ".join(f"{topic}({listed(numbers)})" for topic, numbers in topics.items())


def _as_json(group: GroupDescription, rows: list[LagRow]) -> dict[str, object]:
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
                "topic": row.at.topic,
                "partition": row.at.partition,
                "committed": row.committed,
                "metadata": None if row.committed is None else row.metadata,
                "log_end": row.end,
                "lag": row.lag,
                "member": None if row.member is None else row.member.member_id,
            }
            for row in rows
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
