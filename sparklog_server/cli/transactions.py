"""`sparklog transactions`: list and describe them, find hanging ones, and end those that no
coordinator or driver will end.
"""

from typing import TYPE_CHECKING

import click

from sparklog.client.admin.admin import Admin
from sparklog.client.clock import instant
from sparklog.client.exactly_once.decisions import PREFIX, is_coordinator, is_sink_name, sink_name, sink_of
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, partitions_named, topic_names, transactional_ids
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json, listed, print_json, print_table, report, say, tell_missing
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.surveys import listed_by_all

if TYPE_CHECKING:
    from sparklog.client.admin.transactions import OpenTransaction, TransactionDescription
    from sparklog.client.exactly_once.decision_log import DecisionLog

DESCRIBE_COLUMNS = (
    "transactional id",
    "coordinator",
    "producer id",
    "epoch",
    "state",
    "timeout ms",
    "start ms",
    "duration ms",
    "partitions",
)
HANGING_COLUMNS = (
    "topic",
    "partition",
    "producer id",
    "epoch",
    "coordinator epoch",
    "start offset",
    "last time ms",
    "minutes",
)
MS_PER_MINUTE = 60_000
KAFKA_TIMEOUT_MINUTES_MAX = 15


@click.group()
def transactions() -> None:
    """List and describe transactions, and end hanging ones."""


@transactions.command(name="list")
@click.option(
    "--state",
    "states",
    metavar="STATE",
    multiple=True,
    help="List only this state: Ongoing, PrepareCommit, CompleteAbort, Empty … Repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    metavar="ID",
    type=int,
    multiple=True,
    help="List only this producer id. Repeatable.",
)
@click.option(
    "--longer-than",
    "longer_than_ms",
    metavar="MS",
    type=int,
    default=-1,
    help="List only transactions open for longer.",
)
@click.option("--pattern", metavar="RE", help="List only ids that match this regular expression in full.")
@click.option("--prefix", metavar="TEXT", default="", help="List only ids with this prefix.")
@reaches_cluster
@as_json
@can_watch
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int,
    pattern: str | None,
    prefix: str,
    is_json: bool,
) -> int:
    """List the transactional ids with their producer and state.

    Exits with 1 if a broker does not answer: the transactions of the others are listed.
    """
    if prefix and pattern is not None:
        raise click.UsageError("--prefix and --pattern say the same in two ways: leave one out")
    with admin(awaits_silent=False) as cluster:
        found, missing = listed_by_all(
            lambda: cluster.list_transactions(
                states=states,
                producer_ids=producer_ids,
                longer_than_ms=longer_than_ms,
                pattern=pattern,
                prefix=prefix,
            )
        )
    if is_json:
        print_json(
            [
                {
                    "transactional_id": one.transactional_id,
                    "coordinator": one.coordinator,
                    "producer_id": one.producer_id,
                }
                | {"state": one.state}
                for one in found
            ]
        )
        return tell_missing(missing)
    rows = [[one.transactional_id, one.coordinator, one.producer_id, one.state] for one in found]
    print_table(
        ["transactional id", "coordinator", "producer id", "state"],
        rows,
        empty="" if missing else "there are no such transactions",
    )
    return tell_missing(missing)


@transactions.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...", shell_complete=transactional_ids)
@reaches_cluster
@as_json
@can_watch
def describe(names: tuple[str, ...], is_json: bool) -> None:
    """Show state, producer, age and partitions of transactions by their transactional ids."""
    with admin() as cluster:
        described = cluster.describe_transactions(names)
    if is_json:
        print_json([_description_as_json(one) for one in described.values()])
        return
    rows = [
        [
            one.transactional_id,
            one.coordinator,
            one.producer_id,
            one.producer_epoch,
            one.state,
            one.timeout_ms,
        ]
        + (
            [None, None]
            if one.start_time_ms < 0
            else [one.start_time_ms, max(0, _now_ms() - one.start_time_ms)]
        )
        + [listed(one.partitions)]
        for one in described.values()
    ]
    print_table(DESCRIBE_COLUMNS, rows)


@transactions.command(name="find-hanging")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    multiple=True,
    help="Search only these partitions. Repeatable.",
    shell_complete=topic_names,
)
@click.option(
    "--broker", "node", metavar="ID", type=int, help="Search only partitions with a replica on this broker."
)
@click.option(
    "--older-than",
    "minutes",
    metavar="MINUTES",
    type=click.IntRange(min=0),
    default=KAFKA_TIMEOUT_MINUTES_MAX,
    show_default=True,
    help="Find only transactions older than this, the brokers' transaction.max.timeout.ms: a younger one "
    "may still end by itself.",
)
@reaches_cluster
@as_json
@can_watch
def find_hanging(topics: tuple[str, ...], node: int | None, minutes: int, is_json: bool) -> None:
    """Find transactions that are open in partitions and that no coordinator will end; `abort` ends them."""
    with admin() as cluster:
        partitions = partitions_named(cluster, topics) if topics else []
        found = cluster.find_hanging_transactions(
            partitions=partitions, node=node, longer_than_ms=minutes * MS_PER_MINUTE
        )
    if is_json:
        print_json([_open_as_json(one) for one in found])
        return
    rows = [
        [*_open_as_json(one).values(), (_now_ms() - one.producer.last_timestamp_ms) // MS_PER_MINUTE]
        for one in found
    ]
    print_table(HANGING_COLUMNS, rows, empty="no transaction hangs")


@transactions.command()
@click.argument("topic", metavar="TOPIC:PARTITION", shell_complete=topic_names)
@click.option(
    "--start-offset",
    metavar="OFFSET",
    type=int,
    help="Set the first offset of the transaction, as find-hanging prints it.",
)
@click.option(
    "--producer-id",
    metavar="ID",
    type=int,
    help="Select by producer id and the two epochs instead of the offset, for brokers before 3.0.",
)
@click.option(
    "--producer-epoch", metavar="EPOCH", type=int, help="With --producer-id, set the epoch of the producer."
)
@click.option(
    "--coordinator-epoch",
    metavar="EPOCH",
    type=int,
    help="With --producer-id, set the epoch of the coordinator.",
)
@reaches_cluster
def abort(
    topic: str,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction in one partition by writing its marker; use `force-terminate` if a
    coordinator knows it.
    """
    by_epochs = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (producer_id is None):
        raise click.UsageError(
            "select the transaction with --start-offset, or --producer-id with --producer-epoch and "
            "--coordinator-epoch"
        )
    if start_offset is None and None in by_epochs:
        raise click.UsageError("--producer-id needs --producer-epoch and --coordinator-epoch")
    with admin() as cluster:
        partitions = partitions_named(cluster, [topic])
        if len(partitions) != 1:
            raise click.UsageError(f"{topic} has {len(partitions)} partitions: name one as {topic}:0")
        if start_offset is not None:
            by_epochs = _producer_at(cluster, partitions[0], start_offset)
        number, epoch, coordinator = by_epochs
        assert number is not None
        assert epoch is not None
        assert coordinator is not None
        cluster.abort_transaction(
            partitions[0], producer_id=number, producer_epoch=epoch, coordinator_epoch=coordinator
        )
    report(f"aborted the transaction of producer {number} in {partitions[0]}")


@transactions.command(name="force-terminate")
@click.argument("names", nargs=-1, required=True, metavar="ID...", shell_complete=transactional_ids)
@reaches_cluster
def force_terminate(names: tuple[str, ...]) -> None:
    """Abort the open transactions of transactional ids, and fence their producers."""
    with admin() as cluster:
        cluster.fence_producers(names)
    report(f"terminated {listed(names)}")


@transactions.command()
@click.option(
    "--sink",
    "names",
    metavar="SINK",
    multiple=True,
    help="Select a sink by sinkId or query id, or its name in transactional ids. Repeatable.",
)
@click.option(
    "--accept-loss", "accepts_loss", is_flag=True, help="Continue although part of a decided batch is lost."
)
@reaches_cluster
@as_json
def resolve(names: tuple[str, ...], accepts_loss: bool, is_json: bool) -> None:
    """End the open transactions of an exactly-once sink whose driver never returns: commit the decided ones,
    abort the rest.

    A driver that still runs is fenced: its query fails, and may be started again. Without --sink, show
    the open transactions.
    """
    from sparklog.client.exactly_once.committer import Committer
    from sparklog.client.exactly_once.decision_log import DecisionLog

    with admin() as cluster, DecisionLog(client_settings()) as log:
        left_open = _open_by_sink(cluster)
        if not names:
            _show_open(log, left_open, is_json=is_json)
            return
        resolved = []
        for name in names:
            sink = (
                name
                if is_sink_name(name) and (name in left_open or log.last(name) is not None)
                else sink_name(name)
            )
            if sink not in left_open and log.last(sink) is None:
                raise click.ClickException(
                    f"there is no sink {name!r}: it has decided nothing, and nothing of it is open"
                )
            decision, aborted = Committer(log, name, sink=sink).resolve(accepts_loss=accepts_loss)
            committed = (
                0
                if decision is None
                else len(
                    {one.transactional_id for one in decision.transactions} & set(left_open.get(sink, ()))
                )
            )
            resolved.append(
                {
                    "sink": sink,
                    "identity": name if decision is None else decision.identity,
                    "committed": committed,
                    "aborted": aborted,
                }
            )
    if is_json:
        print_json(resolved)
    else:
        print_table(["sink", "identity", "committed", "aborted"], [list(one.values()) for one in resolved])


def _open_by_sink(cluster: Admin) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in cluster.list_transactions(states=["Ongoing"], prefix=PREFIX):
        sink = sink_of(one.transactional_id)
        if sink is not None and not is_coordinator(one.transactional_id):
            found.setdefault(sink, []).append(one.transactional_id)
    return found


def _show_open(log: "DecisionLog", left_open: dict[str, list[str]], *, is_json: bool) -> None:
    shown = []
    for sink, names in left_open.items():
        last = log.last(sink)
        decided = set() if last is None else {one.transactional_id for one in last.decision.transactions}
        identity = "" if last is None else last.decision.identity
        shown.append(
            {"sink": sink, "identity": identity, "open": len(names), "decided": len(decided & set(names))}
        )
    if is_json:
        print_json(shown)
        return
    print_table(
        ["sink", "identity", "open", "decided"],
        [list(one.values()) for one in shown],
        empty="no sink has open transactions",
    )
    if shown:
        say("name those whose driver never returns with --sink")


def _producer_at(cluster: Admin, partition: TopicPartition, start_offset: int) -> tuple[int, int, int]:
    for one in cluster.describe_producers([partition])[partition]:
        if one.transaction_start_offset == start_offset:
            return one.producer_id, one.producer_epoch, one.coordinator_epoch
    raise click.ClickException(f"{partition} has no open transaction that begins at offset {start_offset}")


def _description_as_json(one: "TransactionDescription") -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_time_ms": one.start_time_ms,
        "partitions": [{"topic": at.topic, "partition": at.partition} for at in one.partitions],
    }


def _open_as_json(one: "OpenTransaction") -> dict[str, object]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.producer_epoch,
        "coordinator_epoch": one.producer.coordinator_epoch,
        "start_offset": one.producer.transaction_start_offset,
        "last_timestamp_ms": one.producer.last_timestamp_ms,
    }


def _now_ms() -> int:
    return instant().wall_ms
