"""Proof that a transaction contains a partition, requested from its coordinator before the first batch of
the transaction is appended (KIP-890).

    no transaction open ── begin ──► Verification ── the coordinator agrees ──► append with it ──► open: no
                                          │                                          more proof is needed
                                          └── a marker is appended meanwhile ──► void: the append is refused

The object itself is the proof: one begun before a marker proves nothing of the transaction after it. It is
never written to disk; after a crash the waiting producer retries.
"""


class Verification:
    """What is under way for one producer in one partition.

    `lowest_sequence` is the least that was tried in `epoch`: a batch behind it may not overtake it.
    `adds_partitions` tells of a producer that speaks transaction version 2: its coordinator adds the
    partition where the older one only looks.
    """

    __slots__ = ("adds_partitions", "begun_ms", "epoch", "lowest_sequence")

    def __init__(self, sequence: int, epoch: int, *, adds_partitions: bool, now_ms: int) -> None:
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.adds_partitions = adds_partitions
        self.begun_ms = now_ms

    def tried(self, sequence: int, epoch: int) -> None:
        """Another batch asks for the same proof."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence

    def is_voided_by(self, epoch: int, *, is_control: bool) -> bool:
        """Whether a batch of a transaction ends it, once appended: a marker of version 2 in its epoch is
        of the transaction before.
        """
        return not (self.adds_partitions and is_control and epoch == self.epoch)
