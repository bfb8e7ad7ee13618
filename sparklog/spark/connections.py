"""Connections kept between tasks: Spark reuses Python workers, and a connection costs more than a small
read.

They are kept per process and per settings, so a forked worker never uses the connections of its parent. A
reader whose task failed is closed, because a reply may still be in flight on its connection. The process
that commits also keeps the decision log of each sink, and every process keeps the brokers' timeouts.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.client.exactly_once.decision_log import DecisionLog  # only sinks need it

IDLE_MAX: Final = 8
"""The maximum number of idle readers. One more closes the reader that has been idle longest."""

DECISION_LOGS_MAX: Final = 4
TIMEOUT_DEFAULT_MS: Final = 60_000
TIMEOUT_OF_BROKERS_MS: Final = 900_000
"""Kafka's default of `transaction.max.timeout.ms`, if no broker reports its own."""
ROLLS_FORWARD: Final = "sparklog.transactional.sink.id.expiration.ms"
"""A setting of sparklog brokers, which resolve the decision of a sink's transaction when it times out."""
ROLL_FORWARD_MS: Final = 60_000
"""The time that such a broker has to resolve the decision before it aborts the transaction."""


class _Idle(NamedTuple):
    process: int
    settings: ClientSettings
    reader: RangeReader
    since_s: float


_idle: list[_Idle] = []
"""The most recently used reader is last."""
_decision_logs: "list[tuple[int, ClientSettings, DecisionLog]]" = []
_timeouts: dict[tuple[str, ...], int] = {}


@contextmanager
def range_reader(settings: ClientSettings) -> Iterator[RangeReader]:
    """A reader with these settings, which reuses the connections of an idle one."""
    reader = _taken(settings)
    try:
        yield reader
    except BaseException:
        reader.close()
        raise
    _idle.append(_Idle(os.getpid(), settings, reader, time.monotonic()))
    _close_old()


def decision_log(settings: ClientSettings) -> "DecisionLog":
    """The decision log of a cluster, with its connections and state from the last call."""
    from sparklog.client.exactly_once.decision_log import DecisionLog

    process = os.getpid()
    for kept in _decision_logs:
        if kept[:2] == (process, settings):
            return kept[2]
    made = DecisionLog(settings)
    _decision_logs.append((process, settings, made))
    for old in [kept for kept in _decision_logs if kept[0] == process][:-DECISION_LOGS_MAX]:
        _decision_logs.remove(old)
        old[2].close()
    return made


def query_of_checkpoint(location: str) -> str:
    """The id of the query with that checkpoint; empty if this process cannot read it, as in an object store
    or before the query began.
    """
    path = re.sub(r"^file:(//)?(?=/)", "", location)
    try:
        fields = json.loads((Path(path) / "metadata").read_text())
    except (OSError, ValueError):
        return ""
    query = fields.get("id") if isinstance(fields, dict) else None
    return query if isinstance(query, str) else ""


def transaction_timeout_ms(settings: ClientSettings) -> int:
    """The timeout of a task's transaction: the user's option, else the brokers' maximum.

    With sparklog brokers it is shorter by the time that they need to resolve the decision; Kafka aborts at
    the timeout.
    """
    if settings.transaction_timeout_ms != TIMEOUT_DEFAULT_MS:
        return settings.transaction_timeout_ms
    found = _timeouts.get(settings.bootstrap_servers)
    if found is None:
        found = _timeouts[settings.bootstrap_servers] = _longest_timeout_ms(settings)
    return found


def _longest_timeout_ms(settings: ClientSettings) -> int:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.configs import ConfigResource

    try:
        with Admin.from_settings(settings) as admin:
            brokers = [ConfigResource("broker", str(node.node_id)) for node in admin.describe_cluster().nodes]
            settings_of_brokers = list(admin.describe_resources(brokers).values())
    except SparklogError:
        return TIMEOUT_OF_BROKERS_MS  # the principal may lack the permission
    limits = [
        int(entries["transaction.max.timeout.ms"].value or 0)
        for entries in settings_of_brokers
        if "transaction.max.timeout.ms" in entries
    ]
    longest_ms = min((limit for limit in limits if limit > 0), default=TIMEOUT_OF_BROKERS_MS)
    if all(ROLLS_FORWARD in entries for entries in settings_of_brokers):
        return longest_ms - min(ROLL_FORWARD_MS, longest_ms // 2)
    return longest_ms


def close_idle() -> None:
    """Closes the connections that this process keeps."""
    process = os.getpid()
    for kept in [one for one in _decision_logs if one[0] == process]:
        _decision_logs.remove(kept)
        kept[2].close()
    for idle in [one for one in _idle if one.process == process]:
        _idle.remove(idle)
        idle.reader.close()


def _taken(settings: ClientSettings) -> RangeReader:
    _close_old()
    process = os.getpid()
    for idle in reversed(_idle):
        if idle.process == process and idle.settings == settings:
            _idle.remove(idle)
            return idle.reader
    return RangeReader(settings)


def _close_old() -> None:
    process, now_s = os.getpid(), time.monotonic()
    ours = [one for one in _idle if one.process == process]
    too_many = len(ours) - IDLE_MAX
    for place, idle in enumerate(ours):
        if place < too_many or (now_s - idle.since_s) * 1000 > idle.settings.connections_max_idle_ms:
            _idle.remove(idle)
            idle.reader.close()
