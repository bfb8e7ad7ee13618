"""The interface of the shard to its KIP-848 groups: heartbeats, descriptions, and classic members in such a
group.

`modern_groups.py` decides on heartbeats, `migration_members.py` on the requests of classic members; both
change one set of groups.
"""

from collections.abc import Callable

from sparklog.model import Instant, Micros
from sparklog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import Answer, Decision
from sparklog_server.metadata.image import MetadataDelta, MetadataImage

from .classic_requests import ClassicGroups
from .group import Group
from .group_config import GroupConfig
from .migration_members import ClassicMembers
from .modern_describe import described
from .modern_groups import ModernGroups
from .subscriptions import Describable


class ModernGroupKind:
    """Implements `shard.ModernKind`. `describable` returns the topics that the sender of a command may
    describe, for patterns; `settings` returns the current settings, and is called again when they change.

    The shard is constructed with `functools.partial(ModernGroupKind, settings=…, entropy=…, describable=…,
    record_bytes_max=…)`.
    """

    def __init__(
        self,
        groups: dict[str, Group],
        classic: ClassicGroups,
        *,
        settings: Callable[[], GroupConfig],
        entropy: Callable[[int], bytes],
        describable: Describable,
        record_bytes_max: Callable[[], int],
    ) -> None:
        self._groups = ModernGroups(
            groups,
            classic,
            settings,
            entropy=entropy,
            describable=describable,
            record_bytes_max=record_bytes_max,
        )
        self._members = ClassicMembers(self._groups)

    def replay(self, key: Message, value: Message | None) -> None:
        """Replay a record of a KIP-848 group."""
        self._groups.replay(key, value)

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        """Start the timers: every record has been replayed."""
        return self._groups.loaded(image, now)

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        """Decide on a request for a group of this kind; every request is answered at once."""
        if type(command.request) is ConsumerGroupHeartbeatRequest:
            return self._groups.heartbeat(command, token, now)
        if type(command.request) is ConsumerGroupDescribeRequest:
            return self._describe(command.request, token)
        return self._members.decide(command, token, now)

    def _describe(self, request: ConsumerGroupDescribeRequest, token: Token) -> Decision:
        groups, default = self._groups, self._groups.settings.consumer_assignors[0]
        descriptions = [
            described(group_id, groups.groups.get(group_id), groups.image, default)
            for group_id in request.group_ids
        ]
        return Decision((), (Answer(token, ConsumerGroupDescribeResponse(groups=descriptions)),))

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        """Take over new metadata: groups whose topics changed begin a new epoch with their next heartbeat."""
        return self._groups.image_changed(delta, now)

    def tick(self, now: Instant) -> list[Decision]:
        """The decisions due by `now`."""
        return self._groups.tick(now)

    def deadline(self) -> Micros | None:
        """The next time for `tick`."""
        return self._groups.deadline()

    def abandoned(self, token: Token) -> None:
        """Do nothing: no request waits."""

    def waiting(self) -> list[Token]:
        """No token: every request is answered at once."""
        return []
