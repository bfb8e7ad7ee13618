"""What a partition tells the fetches that stand in a session."""

from typing import Protocol


class Standing(Protocol):
    """The fetch of a partition that stands in a session (KIP-227). Must not use the partition."""

    def appended(self) -> None:
        """The log has grown."""

    def high_watermark_moved(self) -> None: ...

    def log_start_moved(self) -> None: ...

    def in_sync_changed(self) -> None:
        """The ISR has changed, or is proposed to."""

    def role_ended(self) -> None:
        """The partition has forgotten this fetch: its role has ended."""
