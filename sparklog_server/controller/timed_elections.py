"""Elections that no broker and no client asks for: by time, and after a change of a setting.

    unclean     partitions without a leader whose topics allow an unclean election: every
                unclean.leader.election.interval.ms, and at once after a change of
                unclean.leader.election.enable
    preferred   partitions whose preferred replica is in sync and does not lead: every
                leader.imbalance.check.interval.seconds, and RETURN_S after a replica came in sync, a broker
                came into service, or the leadership of this controller began; if
                auto.leader.rebalance.enable (decision 0021)

(PeriodicTaskControlManager, ReplicationControlManager)
"""

from collections.abc import Iterable
from typing import Final

from sparklog.model import Instant, Micros
from sparklog.wire.schema import Message
from sparklog_server.config.replica_settings import ElectionSettings
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
)

from .broker_fencing import leaderless_elected, partitions_where
from .elections import Election, PartitionChangeBuilder, SettingsFor, acceptable

ELECTIONS_MAX: Final = 1000
"""The elections of one step, as in Kafka; the next step follows at once."""
RETURN_S: Final = 5
"""Gathers the partitions of a broker that returns, which come in sync one after the other."""
_UNCLEAN_KEY: Final = "unclean.leader.election.enable"
_UNFENCED: Final = -1


class TimedElections:
    """When the next elections are due: soft state of one leadership."""

    def __init__(self, settings: ElectionSettings, now: Instant) -> None:
        self._is_balanced = settings.is_balanced
        self._unclean_interval_us = settings.unclean_interval_ms * 1000
        self._balance_interval_us = settings.balance_interval_s * 1_000_000
        self._unclean_us = Micros(now.mono_us + self._unclean_interval_us)
        self._balance_us = Micros(now.mono_us + self._balance_interval_us)
        self._balance_soon(now)

    def decided(self, records: Iterable[Message], now: Instant) -> None:
        """These records were decided on: they may allow unclean elections, or let preferred replicas lead."""
        for one in records:
            if isinstance(one, PartitionChangeRecord):
                if one.isr is not None:
                    self._balance_soon(now)
            elif isinstance(one, BrokerRegistrationChangeRecord):
                if one.fenced == _UNFENCED:
                    self._balance_soon(now)
            elif isinstance(one, ConfigRecord) and one.name == _UNCLEAN_KEY:
                self._unclean_us = now.mono_us

    def _balance_soon(self, now: Instant) -> None:
        self._balance_us = min(self._balance_us, Micros(now.mono_us + RETURN_S * 1_000_000))

    def deadline(self) -> Micros:
        """When `due` may have elections to hold."""
        return min(self._unclean_us, self._balance_us) if self._is_balanced else self._unclean_us

    def due(self, image: MetadataImage, settings_for: SettingsFor, now: Instant) -> tuple[Message, ...]:
        """The records of the elections that are due, of one kind and at most ELECTIONS_MAX."""
        records: list[Message] = []
        if self._unclean_us <= now.mono_us:
            records = leaderless_elected(image, settings_for)[:ELECTIONS_MAX]
            if len(records) < ELECTIONS_MAX:
                self._unclean_us = Micros(now.mono_us + self._unclean_interval_us)
        if not records and self._is_balanced and self._balance_us <= now.mono_us:
            records = _balanced(image, settings_for)[:ELECTIONS_MAX]
            if len(records) < ELECTIONS_MAX:
                self._balance_us = Micros(now.mono_us + self._balance_interval_us)
        return tuple(records)


def _balanced(image: MetadataImage, settings_for: SettingsFor) -> list[Message]:
    """The elections of the preferred replicas that are in sync and do not lead."""
    changes: list[Message] = []
    avoided = image.drained

    def is_imbalanced(partition: PartitionImage) -> bool:
        preferred = partition.replicas[0]
        return partition.leader != preferred and preferred in partition.isr and preferred not in avoided

    for topic_id, index, partition, rules in partitions_where(image, settings_for, is_imbalanced):
        change = PartitionChangeBuilder(
            partition, topic_id, index, rules, acceptable(image, partition)
        ).build(election=Election.PREFERRED)
        if change is not None:
            changes.append(change)
    return changes
