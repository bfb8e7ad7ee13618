"""`sparklog offsets`: where the logs of partitions begin and end."""

from collections.abc import Iterable
from typing import NamedTuple

import click

from sparklog.client.admin.admin import EARLIEST, LATEST, Admin, ItemsFailed
from sparklog.client.admin.topics import Topic
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, chosen, matches_names, partitions_in, topic_names, topics_named
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_table
from sparklog_server.cli.watching import can_watch


class Extent(NamedTuple):
    """`[begin, end)` of a log, and its last stable offset; None where no leader tells it."""

    begin: int | None = None
    end: int | None = None
    stable: int | None = None

    @property
    def records(self) -> int | None:
        """The offsets between, an upper bound of the number of records."""
        return None if self.begin is None or self.end is None else self.end - self.begin


def extents(
    cluster: Admin, partitions: Iterable[TopicPartition], *, with_stable: bool = False
) -> dict[tuple[str, int], Extent]:
    """The extents of logs by topic and number; of those that cannot be asked or refuse, without offsets."""
    asked = list(partitions)
    begins = _offsets(cluster, dict.fromkeys(asked, EARLIEST))
    ends = _offsets(cluster, dict.fromkeys(asked, LATEST))
    stable = _offsets(cluster, dict.fromkeys(asked, LATEST), is_committed=True) if with_stable else {}
    return {one: Extent(begins.get(one), ends.get(one), stable.get(one)) for one in asked}


def _offsets(
    cluster: Admin, positions: dict[TopicPartition, int], *, is_committed: bool = False
) -> dict[TopicPartition, int]:
    if not positions:
        return {}
    try:
        offsets = cluster.list_offsets(
            positions, isolation_level="read_committed" if is_committed else "read_uncommitted"
        )
    except ItemsFailed as failed:
        offsets = failed.results
    return {partition: listed.offset for partition, listed in offsets.items()}


def led(topics: Iterable[Topic]) -> list[TopicPartition]:
    """The partitions that have a leader: those without one would be waited for."""
    return [
        TopicPartition(topic.name, one.partition)
        for topic in topics
        for one in topic.partitions
        if one.leader >= 0
    ]


@click.group()
def offsets() -> None:
    """Show the offsets of partitions."""


@offsets.command(name="list")
@click.argument("texts", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=topic_names)
@matches_names
@click.option("--internal", is_flag=True, help="Include internal topics if no TOPIC is given.")
@reaches_cluster
@as_json
@can_watch
def list_offsets(texts: tuple[str, ...], is_regex: bool, internal: bool, is_json: bool) -> None:
    """Show log start offset, log end offset and last stable offset of partitions, and the records between.

    The last stable offset is where readers of committed records stop: the first record of an open
    transaction. The number of records is an upper bound: compaction leaves gaps.
    """
    with admin() as cluster:
        if is_regex or not texts:
            topics, numbers = chosen(cluster, texts, is_regex=is_regex, internal=internal), {}
        else:
            named = [partitions_in(text) for text in texts]
            numbers = {topic: wanted for topic, wanted in named if wanted is not None}
            topics = topics_named(cluster, dict.fromkeys(topic for topic, _ in named))
        wanted_partitions = [
            (topic.name, one.partition)
            for topic in topics.values()
            for one in topic.partitions
            if one.partition in numbers.get(topic.name, (one.partition,))
        ]
        found = extents(
            cluster, [one for one in led(topics.values()) if one in wanted_partitions], with_stable=True
        )
    rows = [
        (topic, number, *extent, extent.records)
        for topic, number in wanted_partitions
        for extent in [found.get((topic, number), Extent())]
    ]
    columns = ("topic", "partition", "log start", "log end", "last stable", "records")
    if is_json:
        names = ("topic", "partition", "log_start_offset", "log_end_offset", "last_stable_offset", "records")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(columns, rows, empty="there are no such partitions")
