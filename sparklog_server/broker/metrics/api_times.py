"""The time of the requests of one API and version by part, and that of one request."""

import msgspec

from sparklog_server.histogram import Histogram


class ApiTimes:
    """The requests of one API and version. `remote` counts those that were parked, `throttle` those whose
    client exceeded a quota, and `send` those whose response the socket did not take at once: the others
    waited for nothing there. `count` are those that ended.
    """

    __slots__ = (
        "api_key",
        "count",
        "is_of_follower",
        "local",
        "queue",
        "remote",
        "send",
        "throttle",
        "total",
        "version",
    )

    def __init__(self, api_key: int, version: int, *, is_of_follower: bool) -> None:
        self.api_key = api_key
        self.version = version
        self.is_of_follower = is_of_follower
        self.count = 0
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.throttle = Histogram()
        self.send = Histogram()
        self.total = Histogram()


class Timed(msgspec.Struct, eq=False):
    """The parts of the time of one request in µs. `asked_us` is the part of `remote_us` that it asked for."""

    bytes: int
    queue_us: int
    local_us: int
    asked_us: int
    remote_us: int = 0
    throttle_us: int = 0

    @property
    def slow_us(self) -> int:
        """Its time without the wait that it asked for."""
        return self.queue_us + self.local_us + max(0, self.remote_us - self.asked_us)
