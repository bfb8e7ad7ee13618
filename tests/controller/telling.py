"""Records and replies of a controller in a few words, for stories."""

from collections.abc import Callable

from sparklog.errors import code_of
from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)


def eligible(partition: PartitionImage) -> str:
    """The ELR and the last known leader of a partition that has some."""
    told = [("elr", partition.eligible_leader_replicas), ("last-known", partition.last_known_elr)]
    return "".join(f" {name}={','.join(map(str, nodes))}" for name, nodes in told if nodes)


def answer(name: str, code: int, message: str | None) -> str:
    return f"-> {name} {code_of(code).name}" + (f": {message}" if message else "")


def told(record: Message, name_of: Callable[[bytes], str]) -> str:
    """A record in a few words; `name_of` gives the name of a topic id."""
    match record:
        case RegisterBrokerRecord():
            return f"register broker={record.broker_id} epoch={record.broker_epoch} fenced={record.fenced}"
        case BrokerRegistrationChangeRecord():
            changes = {1: " fence", -1: " unfence", 0: ""}[record.fenced] + (
                " shutting-down" if record.in_controlled_shutdown else ""
            )
            dirs = f" dirs={''.join(chr(one[0]) for one in record.log_dirs)}" if record.log_dirs else ""
            if record.cordoned_log_dirs is not None:
                dirs += f" cordoned={''.join(chr(one[0]) for one in record.cordoned_log_dirs)}"
            return f"change broker={record.broker_id}{changes}{dirs}"
        case RegisterControllerRecord():
            return f"register controller={record.controller_id}"
        case UnregisterBrokerRecord():
            return f"unregister broker={record.broker_id}"
        case TopicRecord():
            return f"topic {record.name}"
        case ConfigRecord():
            resource = record.resource_name or "(cluster)"
            return f"config {resource} {record.name}={'' if record.value is None else record.value}"
        case PartitionRecord():
            dirs = "".join(chr(one[0]) for one in record.directories)
            return f"partition {record.partition_id} replicas={record.replicas} isr={record.isr} leader={record.leader} dirs={dirs}"  # noqa: E501
        case PartitionChangeRecord():
            isr = "" if record.isr is None else f" isr={record.isr}"
            leader = "" if record.leader == -2 else f" leader={record.leader}"
            elr = record.eligible_leader_replicas
            isr += "" if elr is None else f" elr={elr}"
            isr += "" if record.last_known_elr is None else f" last-known={record.last_known_elr}"
            recovery = {-1: "", 0: " recovered", 1: " recovering"}[record.leader_recovery_state]
            dirs = f" dirs={''.join(chr(one[0]) for one in record.directories)}" if record.directories else ""
            name = f"{name_of(record.topic_id)}-{record.partition_id}"
            return f"partition-change {name}{isr}{leader}{recovery}{dirs}"
        case ClearElrRecord():
            return f"clear-elr {record.topic_name or '(all topics)'}"
        case RemoveTopicRecord():
            return f"remove {name_of(record.topic_id)}"
        case ProducerIdsRecord():
            return f"producer-ids next={record.next_producer_id}"
        case FeatureLevelRecord():
            return f"feature {record.name}={record.feature_level}"
    return type(record).__name__
