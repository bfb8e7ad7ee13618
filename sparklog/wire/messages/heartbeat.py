"""A member of a classic group extends its session, and is told to rejoin during a rebalance. v3 has static
members.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int16, Int32, Message, NullableStr, Str, Versions, essential, since


class HeartbeatRequest(Message):
    versions: ClassVar = Versions(0, 4, flexible=4)

    group_id: Str = ""
    generation_id: Int32 = 0
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(3), essential] = None


class HeartbeatResponse(Message):
    versions: ClassVar = Versions(0, 4, flexible=4)

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
