"""What `sparklog status` asks: the cluster, and the HTTP listeners of its nodes for what is not in Kafka's
protocol: release, start and last events.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Cluster
from sparklog.client.admin.configs import ConfigResource
from sparklog.client.admin.storage import LogDir
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError
from sparklog.model import NodeId
from sparklog_server.cli.node_pages import Address, NodePages, PageFailed, addresses, samples
from sparklog_server.operations.brokers import (
    BrokerRow,
    PartitionCounts,
    broker_rows,
    broker_state,
    partition_counts,
)
from sparklog_server.operations.inert_text import inert_name
from sparklog_server.operations.lag import described_groups
from sparklog_server.operations.surveys import described_by_all, listed_by_all

GROUPS_MAX: Final = 200
ERRORS_MAX: Final = 5
LISTENER_KEY: Final = "sparklog.http.listener"
WITHOUT_HTTP: Final = (
    "release, uptime and last events are not in Kafka's protocol: set sparklog.http.listener, or name the "
    "nodes' by --http http://HOST:PORT"
)
_BUILD: Final = "sparklog_build_info"
_STARTED: Final = "process_start_time_seconds"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class GroupLine(NamedTuple):
    """A group; members and lag None where they are not known."""

    group: str
    state: str
    members: int | None
    lag: int | None


class NodePage(NamedTuple):
    """What the HTTP listener of a node tells."""

    version: str | None
    uptime_s: int | None
    events: tuple[str, ...]


class Status(NamedTuple):
    """One look at a cluster. `pages` are by address, `page_of` has the address of a broker. `lag` is None if
    that of a group, or the groups of a broker, are not known; `silent` are the brokers that do not answer.
    """

    cluster_id: str
    brokers: list[BrokerRow]
    counts: PartitionCounts
    groups: list[GroupLine]
    page_of: dict[int, Address]
    pages: dict[Address, NodePage]
    notes: list[str]
    lag: int | None
    silent: frozenset[NodeId]

    @property
    def is_ok(self) -> bool:
        """Whether every partition has a leader, and every broker answers and serves with all its disks."""
        return not self.counts.offline and all(self.state_of(one) == "ok" for one in self.brokers)

    def state_of(self, row: BrokerRow) -> str:
        """The state of a broker in a word or two."""
        return broker_state(row, self.silent)


def status_of(admin: Admin, settings: ClientSettings, given: Iterable[Address], *, events_max: int) -> Status:
    """Ask everything. Raises SparklogError if the cluster does not answer; a part that fails is a note."""
    notes: list[str] = []
    cluster = admin.describe_cluster(include_fenced=True)
    topics = admin.list_topics(include_internal=True)
    dirs: Mapping[NodeId, tuple[LogDir, ...]] = {}
    silent: frozenset[NodeId] = frozenset()
    try:
        answered = described_by_all(admin.describe_log_dirs)
        dirs, silent = answered.found, answered.silent
        notes += [f"no sizes of disks: {error}" for error in answered.errors.values()]
    except SparklogError as error:  # refused
        notes.append(f"no sizes of disks: {error}")
    found = listeners(admin, cluster, silent)
    # An address that is given without a broker of that name still tells its events.
    pages = _pages(settings, dict.fromkeys((*found.values(), *given)), events_max, notes)
    if not pages:
        notes.append(WITHOUT_HTTP)
    groups, lag = _groups(admin, silent, notes)
    return Status(
        cluster.cluster_id,
        broker_rows(cluster, topics, dirs),
        partition_counts(topics),
        groups,
        found | _by_host(cluster, given),
        pages,
        notes,
        lag,
        silent,
    )


def listeners(admin: Admin, cluster: Cluster, silent: Collection[NodeId] = ()) -> dict[int, Address]:
    """The HTTP listeners of brokers by their settings, silent ones left out. The host is that of the broker,
    or both are loopback: a setting leads to no other machine.
    """
    hosts = {
        node.node_id: node.host for node in cluster.nodes if not node.is_fenced and node.node_id not in silent
    }
    found: dict[int, Address] = {}
    for node, host in hosts.items():
        text = ""
        with suppress(SparklogError):  # refused, or a broker that is down
            resource = ConfigResource("broker", str(node))
            entry = admin.describe_resources([resource], [LISTENER_KEY])[resource].get(LISTENER_KEY)
            text = (entry.value if entry is not None else None) or ""
        with suppress(ValueError):
            for one in addresses([text]) if text else ():
                if one.host == host or (one.host in _LOOPBACK and host in _LOOPBACK):
                    found[node] = one
    return found


def _by_host(cluster: Cluster, given: Iterable[Address]) -> dict[int, Address]:
    """The given addresses of hosts that run one broker."""
    found: dict[int, Address] = {}
    for address in given:
        nodes = [
            node.node_id
            for node in cluster.nodes
            if node.host == address.host or (node.host in _LOOPBACK and address.host in _LOOPBACK)
        ]
        if len(nodes) == 1:
            found[nodes[0]] = address
    return found


def _pages(
    settings: ClientSettings, asked: Iterable[Address], events_max: int, notes: list[str]
) -> dict[Address, NodePage]:
    pages = NodePages(settings)
    found: dict[Address, NodePage] = {}
    for address in asked:
        try:
            read = samples(pages.read(address, "/metrics"), (_BUILD, _STARTED))
        except PageFailed as error:
            notes.append(f"no release and uptime: {error}")
            continue
        versions = [labels.get("version") for labels, _ in read[_BUILD]]
        started = [value for _, value in read[_STARTED]]
        events: tuple[str, ...] = ()
        try:
            events = tuple(pages.read(address, "/events").splitlines()[-events_max:]) if events_max else ()
        except PageFailed as error:
            notes.append(f"no events: {error}")
        found[address] = NodePage(
            inert_name(versions[0]) if versions and versions[0] else None,
            max(0, int(time.time() - started[0])) if started else None,
            tuple(map(inert_name, events)),
        )
    return found


def _groups(admin: Admin, silent: frozenset[NodeId], notes: list[str]) -> tuple[list[GroupLine], int | None]:
    """The groups, those with the most lag first, and the lag of all; None if part of it is not known."""
    try:
        listing = listed_by_all(admin.list_groups)
        names = [one.group_id for one in listing.found]
        described, errors = described_groups(admin, names[:GROUPS_MAX], silent | listing.silent)
    except SparklogError as error:
        notes.append(f"no groups: {error}")
        return [], None
    notes += [f"groups are missing: {error}" for error in listing.errors.values()]
    notes += [f"no members and lag: {error}" for error in list(errors.values())[:ERRORS_MAX]]
    if len(errors) > ERRORS_MAX:
        notes.append(f"no members and lag of {len(errors) - ERRORS_MAX} more groups")
    if len(names) > GROUPS_MAX:
        notes.append(f"{GROUPS_MAX} of {len(names)} groups are shown")
    found = [
        GroupLine(name, one.group.state, len(one.group.members), one.lag) for name, one in described.items()
    ]
    states = {one.group_id: one.state for one in listing.found}
    found += [
        GroupLine(name, states[name] or "unknown", None, None) for name in errors if name not in described
    ]
    is_known = not listing.errors and not errors and all(one.is_lag_known for one in described.values())
    lag = sum(one.lag or 0 for one in found) if is_known else None
    return sorted(found, key=lambda one: (-(one.lag or 0), one.group)), lag


def uptime_text(seconds: int) -> str:
    """Two units: 3 d 4 h, 12 min 5 s."""
    minutes, hours = seconds // 60, seconds // 3600
    if hours >= 24:
        return f"{hours // 24} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
