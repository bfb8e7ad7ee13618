"""One consumer group as one machine, for its thread: the coordinator, this client's membership, and its
offsets.
"""

from sparklog.client.cluster import Entropy
from sparklog.client.failures import CommitFailed, RebalanceInProgress
from sparklog.client.membership.classic import ClassicMember
from sparklog.client.membership.member import Coordinator, Errand, GroupMetadata, Member, Step, Subscription
from sparklog.client.membership.modern import ConsumerMember
from sparklog.client.membership.offsets import GroupOffsets, Job
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError
from sparklog.model import Micros
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.schema import Message


class Group:
    """One group of a client. Invariant: without a subscription it only commits and fetches offsets, and its
    identity is that of a client without membership.
    """

    def __init__(self, settings: ClientSettings, entropy: Entropy) -> None:
        assert settings.group_id is not None
        self.coordinator = Coordinator(settings, entropy)
        self.offsets = GroupOffsets(settings, self.coordinator, entropy)
        self._settings = settings
        self._is_modern = settings.group_protocol == "consumer"
        self.member: Member = (ConsumerMember if self._is_modern else ClassicMember)(
            settings, self.coordinator, entropy
        )
        self._is_subscribed = False

    @property
    def identity(self) -> GroupMetadata:
        """The member's identity in the group."""
        return self.member.identity

    @property
    def step(self) -> Step | None:
        """The next step for the user's thread."""
        return self.member.steps.first

    @property
    def error(self) -> SparklogError | None:
        """The fatal error of the membership, if any."""
        return self.member.error or (self.coordinator.error if self._is_subscribed else None)

    def subscribe(self, subscription: Subscription, now: Micros) -> None:
        """Subscribe to these topics."""
        self._is_subscribed = True
        self.member.subscribe(subscription, now)

    def leave(self, now: Micros) -> None:
        """Leave the group and end the subscription."""
        self._is_subscribed = False
        self.member.leave(now)

    def commit(self, job: Job) -> Job:
        """Commit; raises CommitFailed at once if the commit cannot succeed."""
        if self._is_subscribed and self.member.is_rebalancing:
            raise RebalanceInProgress(
                f"group {self.identity.group_id!r} is being joined: poll until partitions are assigned"
            )
        if self._is_subscribed and self.identity.generation_id < 0:
            raise CommitFailed(
                f"group {self.identity.group_id!r}: this member is not in the group; poll joins it, then "
                f"commit"
            )
        return self.offsets.add(job)

    def errands(self, now: Micros) -> list[Errand]:
        """Requests to send now."""
        errands = self.member.errands(now)
        errands += self.offsets.errands(now, self.identity, sends_epoch=self._is_modern)
        return errands + self.coordinator.errands(now)

    def deadline(self) -> Micros | None:
        """The next time to call `errands` without an event before it."""
        times = (self.coordinator.deadline(), self.member.deadline(), self.offsets.deadline())
        return min((time for time in times if time is not None), default=None)

    def replied(self, errand: Errand, reply: Message, now: Micros) -> None:
        """Process a reply."""
        if isinstance(reply, FindCoordinatorResponse):
            self.coordinator.replied(reply, now)
        elif isinstance(errand.request, OffsetCommitRequest | OffsetFetchRequest):
            code = self.offsets.replied(errand, reply, now, self.identity)
            if self._is_subscribed:
                self.member.disowned(code, now)
        else:
            self.member.replied(errand, reply, now)

    def failed(self, errand: Errand, error: SparklogError, now: Micros) -> None:
        """The request failed without a reply."""
        if isinstance(errand.request, FindCoordinatorRequest):
            self.coordinator.failed(error, now)
        elif isinstance(errand.request, OffsetCommitRequest | OffsetFetchRequest):
            self.offsets.failed(errand, error, now)
        else:
            self.member.failed(errand, error, now)
