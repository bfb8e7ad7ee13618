"""A broker asks the controller for a block of producer ids to hand out."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, Versions


class AllocateProducerIdsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
