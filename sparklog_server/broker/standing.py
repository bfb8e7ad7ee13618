"""This broker's standing with the controller.

begun ── registered, with an epoch ──► fenced ── heartbeat: not fenced ──► ready ── a directory fails ──► told, and still ready
            └── refused ──► halted
"""

from sparklog.effects import Halt
from sparklog.errors import code_of
from sparklog.model import Instant, Uuid
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.context import BROKER_PRINCIPAL, Context
from sparklog_server.replica.directory import Trace


class Registration:
    """The token of this broker's own registration."""


class Unfencing:
    """The token of the heartbeat that unfences this broker."""


class FailureReport:
    """The token of the heartbeat that tells of data directories that failed."""


class Standing:
    """Registers the broker, and tells of `failed`: the ids of directories that can no longer be used and are not yet told of."""

    def __init__(self, context: Context, failed: list[Uuid], trace: Trace) -> None:
        self.is_ready = False
        self._context = context
        self._failed = failed
        self._trace = trace

    def begin(self, registration: BrokerRegistrationRequest, now: Instant) -> None:
        """Register; ready follows by itself."""
        self._context.propose(registration, Registration(), BROKER_PRINCIPAL, now)

    @property
    def has_failures(self) -> bool:
        """Whether there is something to tell, and somebody who listens."""
        return bool(self._failed) and self.is_ready

    def report_failures(self, now: Instant) -> None:
        """Tell which directories can no longer be used, so that nothing is led from them or placed there."""
        failed, self._failed[:] = list(self._failed), []
        self._context.propose(self._heartbeat(offline_log_dirs=failed), FailureReport(), BROKER_PRINCIPAL, now)

    def committed(self, token: object, reply: Message, now: Instant) -> Halt | None:
        """The controller's reply to one of the tokens above is committed."""
        context = self._context
        match token, reply:
            case Registration(), BrokerRegistrationResponse():
                if reply.error_code:
                    return Halt(f"the controller refused the registration: {code_of(reply.error_code).name}")
                context.broker_epoch = reply.broker_epoch
                for directory in context.partitions.directories:
                    directory.log_dir.broker_epoch = reply.broker_epoch
                context.propose(self._heartbeat(offline_log_dirs=[]), Unfencing(), BROKER_PRINCIPAL, now)
            case Unfencing(), BrokerHeartbeatResponse():
                self.is_ready = not reply.is_fenced
                self._trace("broker-ready" if self.is_ready else "broker-still-fenced", node=context.settings.node_id)
            case FailureReport(), _:
                for shards in context.coordinators:
                    shards.check()
            case _:
                raise AssertionError(f"no one awaits {type(reply).__name__} by {token!r}")
        return None

    def _heartbeat(self, *, offline_log_dirs: list[Uuid]) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._context.settings.node_id,
            broker_epoch=self._context.broker_epoch,
            current_metadata_offset=self._context.image.offset,
            want_fence=False,
            offline_log_dirs=list(offline_log_dirs),
        )
