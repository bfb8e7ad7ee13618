"""Downgrade of a KIP-848 group to a classic group.

A group is downgraded when its last member of the KIP-848 protocol leaves, or is replaced by a classic
member of the same instance id, and only classic members stay.
"""

from collections.abc import Callable

from sparklog.model import Instant
from sparklog_server.metadata.image import MetadataImage

from .classic import ClassicGroup
from .classic_requests import ClassicGroups
from .group_config import GroupConfig
from .migration import downgrade_record, downgraded
from .modern_change import Change
from .modern_member import ModernMember
from .modern_reconcile import Owned


class Downgrades:
    """Replaces the records of a decision by those that make its group a classic one."""

    def __init__(self, classic: ClassicGroups, record_bytes_max: Callable[[], int]) -> None:
        self._classic = classic
        self._record_bytes_max = record_bytes_max

    def without(
        self,
        change: Change,
        leaving: list[ModernMember],
        settings: GroupConfig,
        image: MetadataImage,
        now: Instant,
    ) -> bool:
        """Downgrade the group if every member that stays is a classic one. Returns whether it is
        downgraded.
        """
        group = change.group
        classic_leaving = sum(member.classic is not None for member in leaving)
        if group.classic_count == 0 or group.classic_count - classic_leaving != len(group.members) - len(
            leaving
        ):
            return False
        gone = {member.member_id for member in leaving}
        staying = [member for member_id, member in group.members.items() if member_id not in gone]
        classic = downgraded(group, staying, settings, image, now)
        return classic is not None and self._become_classic(change, classic, rebalances=True, now=now)

    def replacing_last(
        self,
        change: Change,
        owned: Owned,
        *,
        has_new_subscription: bool,
        settings: GroupConfig,
        image: MetadataImage,
        now: Instant,
    ) -> bool:
        """Downgrade the group if a classic member replaces its last member of the KIP-848 protocol, a
        static one. Returns whether it is downgraded.
        """
        group, before, after = change.group, change.before, change.after
        if (
            before is None
            or after is None
            or before.classic is not None
            or before.instance_id is None
            or after.classic is None
        ):
            return False
        if group.classic_count != len(group.members) - 1:
            return False
        mark = len(change.records)
        has_target = not change.has_new_epoch and group.assignment_epoch == group.group_epoch
        if has_target:
            change.keep_target()
            after = change.settle_member(owned, has_new_subscription=has_new_subscription)
        members = [*(member for member in group.members.values() if member is not before), after]
        rebalances = not has_target or not all(
            member.is_reconciled_to(group.assignment_epoch) for member in members
        )
        classic = downgraded(group, members, settings, image, now)
        if classic is not None and self._become_classic(change, classic, rebalances=rebalances, now=now):
            return True
        del change.records[mark:]
        return False

    def _become_classic(
        self, change: Change, classic: ClassicGroup, *, rebalances: bool, now: Instant
    ) -> bool:
        record = downgrade_record(classic)
        if len(record.key) + len(record.value or b"") > self._record_bytes_max():
            return False
        # Earlier changes of this decision to the group are discarded with it.
        change.records[:] = [*change.group.tombstones(), record]
        self._classic.adopt(classic, now, rebalances=rebalances)
        return True
