"""Proof that a transaction contains a partition, requested from its coordinator before the first batch of
the transaction is appended (KIP-890).

    no transaction open ── begin ──► Verification ── the coordinator agrees ──► append with it ──► open: no
                                          │                                          more proof is needed
                                          └── a marker is appended meanwhile ──► void: the append is refused

The object itself is the proof: a verification begun before a marker is not valid for the transaction after
it. It is never written to disk; after a crash the waiting producer retries.
"""


class Verification:
    """The verification in progress for one producer in one partition.

    `lowest_sequence` is the lowest sequence that was sent in `epoch`: a later batch must not be appended
    before it. `adds_partitions` marks a producer of transaction version 2, whose coordinator adds the
    partition; for older producers it only checks that the transaction has it.
    """

    __slots__ = ("adds_partitions", "begun_ms", "epoch", "lowest_sequence")

    def __init__(self, sequence: int, epoch: int, *, adds_partitions: bool, now_ms: int) -> None:
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.adds_partitions = adds_partitions
        self.begun_ms = now_ms

    def tried(self, sequence: int, epoch: int) -> None:
        """Note that another batch waits for the same verification."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence

    def is_voided_by(self, epoch: int, *, is_control: bool) -> bool:
        """Whether a batch of a transaction, once appended, voids this verification. Only a marker of version
        2 in the same epoch does not: it belongs to the previous transaction.
        """
        return not (self.adds_partitions and is_control and epoch == self.epoch)
