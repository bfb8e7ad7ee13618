"""min.insync.replicas where eligible leader replicas are enabled (KIP-966).

A replica is eligible because it left an ISR that was below the minimum. So every controller must know the
minimum of a topic and agree on it: it is set for the whole cluster, never for a single broker, and eligible
leader replicas are cleared when it changes.
"""

from collections.abc import Iterable, Mapping

from sparklog.errors import ErrorCode
from sparklog.wire.schema import Message
from sparklog_server.metadata.features import ELR_VERSION
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from sparklog_server.metadata.records import ClearElrRecord, ConfigRecord, FeatureLevelRecord
from sparklog_server.outcome import Refused

from .elections import has_elr

KEY = "min.insync.replicas"


def with_cluster_level(records: Iterable[Message], min_isr: int) -> tuple[Message, ...]:
    """The first records of a cluster, with its minimum if they enable eligible leader replicas."""
    records = tuple(records)
    is_enabled = any(
        isinstance(one, FeatureLevelRecord) and one.name == ELR_VERSION and one.feature_level > 0
        for one in records
    )
    is_set = any(
        isinstance(one, ConfigRecord)
        and (one.resource_type, one.resource_name, one.name) == (BROKER_RESOURCE, "", KEY)
        for one in records
    )
    return (*records, _set("", str(min_isr))) if is_enabled and not is_set else records


def enabling_records(image: MetadataImage, min_isr: int) -> list[Message]:
    """The changes of settings before eligible leader replicas are enabled."""
    records: list[Message] = []
    for (resource_type, name), texts in image.configs.items():
        if resource_type == BROKER_RESOURCE and name and KEY in texts:
            records.append(_set(name, None))
    if KEY not in image.broker_config(""):
        records.append(_set("", str(min_isr)))
    return records


def check_change(image: MetadataImage, resource: tuple[int, str], changes: Mapping[str, str | None]) -> None:
    """Refuse a minimum for a single broker, and none for the cluster; raises Refused with INVALID_CONFIG."""
    resource_type, name = resource
    if resource_type != BROKER_RESOURCE or KEY not in changes or not has_elr(image):
        return
    if name:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Broker-level {KEY} cannot be altered while ELR is enabled.")
    if changes[KEY] is None:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {KEY} cannot be removed while ELR is enabled."
        )


def clearing_records(image: MetadataImage, records: Iterable[Message]) -> list[Message]:
    """The records that clear eligible leader replicas chosen under a minimum that these records change."""
    if not has_elr(image):
        return []
    names = dict.fromkeys(
        one.resource_name if one.resource_type == TOPIC_RESOURCE else ""
        for one in records
        if isinstance(one, ConfigRecord) and one.name == KEY
    )
    return [ClearElrRecord(topic_name=name) for name in names]


def _set(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=KEY, value=value)
