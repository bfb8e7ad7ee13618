"""The handlers of group APIs, which the broker imports when a client first sends one of them."""

from sparklog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest
from sparklog.wire.messages.leave_group import LeaveGroupRequest
from sparklog.wire.messages.list_groups import ListGroupsRequest
from sparklog.wire.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.messages.sync_group import SyncGroupRequest
from sparklog_server.broker.context import Handlers
from sparklog_server.broker.handlers.group_offsets import offset_commit, offset_delete, offset_fetch
from sparklog_server.broker.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)

GROUPS: Handlers = {
    8: (offset_commit, OffsetCommitRequest),
    9: (offset_fetch, OffsetFetchRequest),
    11: (join_group, JoinGroupRequest),
    12: (heartbeat, HeartbeatRequest),
    13: (leave_group, LeaveGroupRequest),
    14: (sync_group, SyncGroupRequest),
    15: (describe_groups, DescribeGroupsRequest),
    16: (list_groups, ListGroupsRequest),
    42: (delete_groups, DeleteGroupsRequest),
    47: (offset_delete, OffsetDeleteRequest),
    68: (consumer_group_heartbeat, ConsumerGroupHeartbeatRequest),
    69: (consumer_group_describe, ConsumerGroupDescribeRequest),
}
