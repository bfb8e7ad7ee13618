"""A coordinator shard as its runtime sees it: commands and records go in, decisions come out.

    command, image, time ─► decide, image_changed, tick ─► Decision(records, answers)
                                                             │ appended, replayed at once
                         answers leave when they are below ◄─┘ the high watermark

Durable state changes in `replay` alone, so recovery is no second code path. Soft state (who waits for a
rebalance, deadlines) may change in a decision, and is gone when the shard is. The runtime appends the
records of a decision and replays them before it asks for the next one; if it cannot append them, it drops
the shard and refuses every token that the shard still holds.
"""

from typing import Protocol

import msgspec

from sparklog.model import Instant, Micros, Offset
from sparklog.record.batch import BatchBuilder
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.metadata.image import MetadataDelta, MetadataImage


class CoordinatorRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of a shard's partition: Kafka's key, and its value, or None to forget the key.

    `message`, where it is given, is what the shard would decode: nobody may change it any more.
    """

    key: bytes
    value: bytes | None
    message: object = None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The reply to the command that came with `token`."""

    token: Token
    reply: Message


class InTransaction(msgspec.Struct, frozen=True, gc=False):
    """In whose transaction records are written, and the proof that it knows of the shard's partition."""

    producer_id: int
    producer_epoch: int
    proof: object


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What follows from one command, or from time: records in one atomic batch, and the answers that rest
    on them.

    A command that must wait (for the other members of its group, say) is answered by a later decision.
    With a `transaction` the records count once that is committed; where the log refuses them nothing was
    replayed, and the answers' tokens are told the log's code. A decision that changed nothing soft
    `may_be_refused`: where a record alone is larger than a batch may be, it is as if it never was.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    transaction: InTransaction | None = None
    may_be_refused: bool = False

    def fits(self, batch_bytes_max: int) -> bool:
        """Whether each record fits a batch of its own."""
        for record in self.records:
            builder = BatchBuilder()
            builder.append(record.key, record.value, (), 0)
            if builder.size > batch_bytes_max:
                return False
        return True


NOTHING = Decision()


class Shard(Protocol):
    """One partition's worth of groups or transactional ids."""

    def replay(self, key: bytes, value: bytes | None, offset: Offset) -> None:
        """Take in a record of the partition, committed or just appended. Raises DecodeError for bytes that
        are none.
        """

    def replay_own(self, message: object, offset: Offset) -> None:
        """Take in a record of this shard's own decision by the `message` in it: as `replay` of its bytes
        would.
        """

    def replay_undecided(self, producer_id: int, key: bytes, value: bytes | None, offset: Offset) -> None:
        """Take in a record that counts once the transaction of its producer is committed. Raises
        DecodeError for bytes that are none.
        """

    def replay_marker(self, producer_id: int, is_commit: bool, offset: Offset) -> None:
        """Take in the end of a producer's transaction: its undecided records count from now on, or are
        forgotten.
        """

    def unfinished(self) -> dict[str, object]:
        """The keys with work under way, where acting on an older state than the newest can do harm: each
        state is replaced by a record.
        """

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        """Everything was replayed: begin what time does to it."""

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        """Decide on a command; its answer carries `token`, in this decision or a later one."""

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        """The published metadata changed."""

    def tick(self, now: Instant) -> list[Decision]:
        """Time has passed: what is due by `now`."""

    def deadline(self) -> Micros | None:
        """When `tick` is wanted next; None for not at all."""

    def abandoned(self, token: Token) -> None:
        """Whoever sent the command is gone (its connection closed): its answer is not wanted any more."""

    def waiting(self) -> list[Token]:
        """The tokens of the commands that were not answered yet, in the order they came: the shard is
        dropped, and they are refused.
        """
