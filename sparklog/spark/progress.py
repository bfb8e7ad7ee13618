"""A stream's progress beside its offsets: numbers by topic and partition, and growth rates of logs."""

from collections.abc import Mapping
from typing import Final

from sparklog.model import TopicPartition
from sparklog.spark.offsets import PartitionOffsets
from sparklog.spark.options import Options

WINDOW_S: Final = 5.0
"""The minimum window of growth rates: a waiting stream fetches log end offsets several times a second."""


class Growth:
    """The records appended to each partition per second, over the last window."""

    def __init__(self) -> None:
        self._since: tuple[float, PartitionOffsets] | None = None
        self._rates: dict[TopicPartition, float] = {}

    def per_second(self, ends: PartitionOffsets, now_s: float) -> Mapping[TopicPartition, float]:
        """The rates of the partitions that grew; empty before the first window ends."""
        if self._since is None:
            self._since = now_s, dict(ends)
        began_s, before = self._since
        if now_s - began_s >= WINDOW_S:
            grown = {tp: ends[tp] - before.get(tp, ends[tp]) for tp in ends}
            self._rates = {
                tp: round(count / (now_s - began_s), 3) for tp, count in grown.items() if count > 0
            }
            self._since = now_s, dict(ends)
        return self._rates


def description(options: Options) -> str:
    """The topics and the start of a query, in a few words."""
    if options.subscribe_pattern is not None:
        chosen = f"subscribePattern={options.subscribe_pattern}"
    elif options.subscribe is not None:
        chosen = f"subscribe={','.join(options.subscribe)}"
    else:
        chosen = f"assign={','.join(map(str, options.assign or ()))}"
    return f"sparklog {chosen} at {options.bootstrap_servers}"


def by_topic(numbers: Mapping[TopicPartition, int | float]) -> dict[str, dict[str, int | float]]:
    """Numbers by topic and by partition, in order, for JSON."""
    shown: dict[str, dict[str, int | float]] = {}
    for tp in sorted(numbers):
        shown.setdefault(tp.topic, {})[str(tp.partition)] = numbers[tp]
    return shown
