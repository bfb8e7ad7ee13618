"""Patterns in requests: a long one is compiled in a job, because that takes up to 150 ms."""

from collections.abc import Callable

from sparklog.errors import without_frames
from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.broker.request_jobs import RequestJobs
from sparklog_server.broker.session import Answer, Call, Parked
from sparklog_server.coordinator.group.subscriptions import PATTERN_CHARS_AT_ONCE, compiled
from sparklog_server.disk.door import StorageError
from sparklog_server.outcome import Refused


def with_pattern(
    jobs: RequestJobs,
    call: Call,
    pattern: str | None,
    then: Callable[[Instant], Answer],
    refusal: Callable[[Refused], Message],
    now: Instant,
) -> Answer:
    """Continue by `then`, after a job has compiled the pattern if it is long; a pattern that cannot be
    compiled is answered by `refusal`.
    """
    if not pattern or len(pattern) <= PATTERN_CHARS_AT_ONCE:
        return then(now)

    def job() -> tuple[Refused, ...]:
        try:
            compiled(pattern)
        except Refused as refused:
            return (without_frames(refused),)
        return ()

    def finished(reasons: tuple[Refused, ...] | StorageError, later: Instant) -> Answer:
        assert not isinstance(reasons, StorageError), "the job reads no disk"
        return refusal(*reasons) if reasons else then(later)

    jobs.run(call, job, finished)
    return Parked.MUTING
