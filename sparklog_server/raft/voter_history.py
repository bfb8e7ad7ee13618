"""The voters and the kraft.version as of each offset of the metadata log (KIP-853).

    static voters ── bootstrap or newest snapshot ── control records of the log, in order ──► latest

A record counts from its append on, before it is committed, and no longer once it is truncated.
"""

from collections.abc import Iterable

import msgspec
from msgspec import structs

from sparklog.kernels import scan
from sparklog.model import NO_OFFSET, NodeId, Offset
from sparklog.record.batch import Buffer, decode_records
from sparklog.record.control import (
    ControlMessage,
    KRaftVersion,
    KRaftVoters,
    Marker,
    VoterEndpoint,
    parse_control,
)

from .voters import VoterSet


class Membership(msgspec.Struct, frozen=True):
    """The voters and the kraft.version from the record at `offset` on; -1 for what no record says."""

    offset: Offset
    voters: VoterSet
    kraft_version: int

    def control(self) -> list[ControlMessage]:
        """The control records of a snapshot, none for kraft.version 0."""
        if self.kraft_version == 0:
            return []
        return [KRaftVersion(k_raft_version=self.kraft_version), self.voters.record()]

    def begun_by(self, leader: NodeId, endpoints: tuple[VoterEndpoint, ...]) -> list[ControlMessage]:
        """The control records at the start of the epoch of `leader`, which accepts raft requests at
        `endpoints`: none if the log has the voters with these endpoints.
        """
        begun = structs.replace(self, voters=self.voters.moved(leader, endpoints))
        return [] if self.offset >= 0 and begun == self else begun.control()


class VoterHistory:
    """Invariants: offsets grow; there is always one entry."""

    def __init__(self, first: VoterSet, kraft_version: int = 0) -> None:
        self._entries = [Membership(NO_OFFSET, first, kraft_version)]

    @property
    def latest(self) -> Membership:
        """The membership that is in force."""
        return self._entries[-1]

    def at(self, offset: Offset) -> Membership:
        """The membership after the record before `offset`."""
        return next((entry for entry in reversed(self._entries) if entry.offset < offset), self._entries[0])

    def begin(self, offset: Offset, control: Iterable[ControlMessage]) -> None:
        """Begin anew with the control records of a snapshot that ends at `offset`; -1 for a bootstrap."""
        found = Membership(offset, self._entries[0].voters, 0)
        for message in control:
            found = _after(found, offset, message)
        self._entries = [found]

    def appended(self, batches: Buffer) -> bool:
        """Take the control records of appended batches; returns whether any changes the membership."""
        before = self.latest
        view = memoryview(batches)
        for position, header in scan.headers(view, False):
            if not header.is_control:
                continue
            batch = view[position : position + header.size]
            for record in decode_records(batch, include_control=True, verify_crc=False):
                message = parse_control(record)
                if message is not None and not isinstance(message, Marker):
                    found = _after(self.latest, Offset(record.offset), message)
                    if found is not self.latest:
                        self._entries.append(found)
        return self.latest is not before

    def truncate(self, end_offset: Offset) -> None:
        """Forget what records from `end_offset` on said."""
        while len(self._entries) > 1 and self._entries[-1].offset >= end_offset:
            self._entries.pop()


def _after(membership: Membership, offset: Offset, message: ControlMessage) -> Membership:
    if isinstance(message, KRaftVersion):
        return Membership(offset, membership.voters, message.k_raft_version)
    if isinstance(message, KRaftVoters):
        return Membership(offset, VoterSet.of(message), membership.kraft_version)
    return membership
