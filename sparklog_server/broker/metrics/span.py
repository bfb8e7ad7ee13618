"""The span of a sampled request, as `request_spans` records it."""

from sparklog.wire.api_keys import API_BY_KEY


class Span:
    """One request. Times in us; `wall_ns` is when it was received, and `served_us` 0 unless it was parked."""

    __slots__ = (
        "address",
        "api_key",
        "begun_us",
        "client_id",
        "error_code",
        "listener",
        "local_us",
        "queue_us",
        "received_us",
        "remote_us",
        "request_bytes",
        "send_us",
        "served_us",
        "span_id",
        "throttle_us",
        "total_us",
        "trace_id",
        "version",
        "wall_ns",
    )

    def __init__(
        self,
        ids: bytes,
        api: tuple[int, int],
        client_id: str,
        *,
        listener: str,
        address: str,
        request_bytes: int,
        received_us: int,
        wall_ns: int,
    ) -> None:
        self.trace_id, self.span_id = ids[:16], ids[16:]
        self.api_key, self.version = api
        self.client_id = client_id
        self.listener, self.address = listener, address
        self.request_bytes = request_bytes
        self.received_us, self.wall_ns = received_us, wall_ns
        self.begun_us = received_us
        self.served_us = 0
        self.queue_us = self.local_us = self.remote_us = self.throttle_us = self.send_us = self.total_us = 0
        self.error_code = 0

    @property
    def name(self) -> str:
        """The name of the API."""
        return API_BY_KEY[self.api_key].name
