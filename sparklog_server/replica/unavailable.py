"""The refusal of a partition that cannot serve a request."""

from sparklog.errors import ErrorCode


class PartitionUnavailable(Exception):
    """The partition cannot serve the request: `code` is the protocol's reason (offline, not the leader, no
    room), `message` the text for the client, if the code alone does not explain the refusal.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = message
