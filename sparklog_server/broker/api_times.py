"""The time of the requests of one API and version, by part."""

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
