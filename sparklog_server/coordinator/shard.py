"""A coordinator shard as its runtime sees it: commands and records go in, decisions come out.

    command, image, time ─► decide, image_changed, tick ─► Decision(records, answers)
                                                             │ appended, replayed at once
                         answers leave when they are below ◄─┘ the high watermark

Durable state changes in `replay` alone, so recovery takes the same path. Soft state (parked requests,
deadlines) may change in a decision, and is lost with the shard. The runtime replays the records of a decision
before it requests the next one; if it cannot append them, it drops the shard and refuses every token that the
shard holds.
"""

from typing import Protocol

import msgspec

from sparklog.model import Instant, Micros, Offset
from sparklog.record.batch import BatchBuilder
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.metadata.image import MetadataDelta, MetadataImage


class CoordinatorRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of a shard's partition: Kafka's key and value; the value None is a tombstone.

    `message`, if given, is the decoded record; it must not change any more.
    """

    key: bytes
    value: bytes | None
    message: object = None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The reply to the command that came with `token`."""

    token: Token
    reply: Message


class InTransaction(msgspec.Struct, frozen=True, gc=False):
    """The transaction that records belong to, and the proof that it includes the shard's partition."""

    producer_id: int
    producer_epoch: int
    proof: object


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The result of a command, or of time: records in one atomic batch, and the answers that depend on
    them.

    A command that must wait, for example for other members of its group, is answered by a later decision.
    Records of a `transaction` count once it is committed; if the log refuses them, none is replayed and the
    tokens of the answers are refused with the code of the log. A decision that has changed no soft state
    `may_be_refused`: it is dropped if one of its records is larger than a batch may be.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    transaction: InTransaction | None = None
    may_be_refused: bool = False

    def fits(self, batch_bytes_max: int) -> bool:
        """Whether each record fits into a batch of its own."""
        for record in self.records:
            builder = BatchBuilder()
            builder.append(record.key, record.value, (), 0)
            if builder.size > batch_bytes_max:
                return False
        return True


NOTHING = Decision()


class Shard(Protocol):
    """The groups or transactional ids of one partition."""

    def replay(self, key: bytes, value: bytes | None, offset: Offset) -> None:
        """Replay a record of the partition, committed or just appended. Raises DecodeError."""

    def replay_own(self, message: object, offset: Offset) -> None:
        """Replay the decoded record of a decision of this shard, with the same result as `replay`."""

    def replay_undecided(self, producer_id: int, key: bytes, value: bytes | None, offset: Offset) -> None:
        """Replay a record that counts once the transaction of its producer is committed. Raises
        DecodeError.
        """

    def replay_marker(self, producer_id: int, is_commit: bool, offset: Offset) -> None:
        """End the transaction of a producer: its undecided records count from now on, or are dropped."""

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        """Start the timers: every record has been replayed."""

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        """Decide on a command; its answer carries `token`, in this decision or a later one."""

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        """Take over new metadata."""

    def tick(self, now: Instant) -> list[Decision]:
        """The decisions due by `now`."""

    def deadline(self) -> Micros | None:
        """The next time for `tick`; None if no timer is armed."""

    def abandoned(self, token: Token) -> None:
        """Drop the answer of a command whose connection is closed."""

    def waiting(self) -> list[Token]:
        """The tokens of unanswered commands in the order of arrival, to be refused when the shard is
        dropped.
        """

    def dropped(self) -> None:
        """Withdraw the requests to the broker that it has not begun: another broker, or another shard after
        the next load, coordinates now.
        """
