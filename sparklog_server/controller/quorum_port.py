"""What the controller asks of the quorum that elected it."""

from collections.abc import Collection
from typing import Protocol

from sparklog.model import Instant, NodeId


class QuorumPort(Protocol):
    """The voters of the metadata log and their kraft.version, which are control records of raft."""

    @property
    def kraft_version(self) -> int:
        """The level in force."""

    @property
    def voter_ids(self) -> Collection[NodeId]:
        """The node ids of the voters."""

    def upgrade_kraft_version(self, level: int, *, is_only_validated: bool, now: Instant) -> str | None:
        """Append the control records of a higher level; the reason if that is refused."""
