"""A partition leader asks the controller to change the ISR.

v3 carries broker epochs, so that a follower that restarted meanwhile is not let in (KIP-903).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    Versions,
    essential,
    since,
    until,
)


class BrokerState(Message):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AlterPartitionRequestPartitionData(Message):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[list[Int32], until(2), essential] = []
    new_isr_with_epochs: Annotated[list[BrokerState], since(3), essential] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class AlterPartitionRequestTopicData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[AlterPartitionRequestPartitionData] = []


class AlterPartitionRequest(Message):
    versions: ClassVar = Versions(2, 3, flexible=0)

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionRequestTopicData] = []


class AlterPartitionResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class AlterPartitionResponseTopicData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[AlterPartitionResponsePartitionData] = []


class AlterPartitionResponse(Message):
    versions: ClassVar = Versions(2, 3, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlterPartitionResponseTopicData] = []
