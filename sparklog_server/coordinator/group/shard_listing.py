"""Requests of administrators for groups of either kind: list and describe."""

from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from sparklog.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from sparklog.wire.schema import Message
from sparklog_server.outcome import cut

from .classic import ClassicGroup, State
from .group import Group

NOT_FOUND_SINCE = 6
"""The version of DescribeGroups from which an unknown group is an error (KIP-1043); earlier versions report
it as dead.
"""


class Filters(NamedTuple):
    """The filters of ListGroups. An empty filter accepts every group, an unknown word none."""

    states: frozenset[str]
    kinds: frozenset[str]

    @classmethod
    def of(cls, request: ListGroupsRequest) -> "Filters":
        return cls(
            frozenset(state.strip().lower() for state in request.states_filter),
            frozenset(kind.lower() for kind in request.types_filter),
        )


class GroupIds(Message):
    """The request and the answer for the ids of the groups of a shard."""

    group_ids: list[str] = []


class ListedGroups(Message):
    """The request to list these groups of a shard, if they still exist and pass the filters; answered with a
    ListGroupsResponse.
    """

    group_ids: list[str]
    filters: Filters


def listed(groups: dict[str, Group], asked: ListedGroups) -> list[ListedGroup]:
    """The groups that pass both filters."""
    states, kinds = asked.filters
    there = [group for group_id in asked.group_ids if (group := groups.get(group_id)) is not None]
    return [
        ListedGroup(group.group_id, group.listed_protocol_type(), group.state_name(), group.kind.value)
        for group in there
        if (not states or group.state_name().lower() in states) and (not kinds or group.kind.value in kinds)
    ]


def described(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """The description of a classic group with its members; the metadata of members is included only while the
    group is stable.
    """
    if not isinstance(group, ClassicGroup):
        answer = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if version >= NOT_FOUND_SINCE:
            answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            what = "not found" if group is None else "is not a classic group"
            answer.error_message = cut(f"Group {group_id} {what}.")
        return answer
    protocol = group.protocol if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        protocol_type=group.listed_protocol_type(),
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.protocols[protocol],
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
