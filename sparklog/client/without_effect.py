"""The settings of Kafka's clients that are known and change nothing here."""

import warnings
from typing import Final

_WITHOUT_EFFECT = """
auto.include.jmx.reporter bootstrap.controllers client.dns.lookup config.providers
default.list.key.serde.inner default.list.key.serde.type default.list.value.serde.inner
default.list.value.serde.type enable.metrics.push interceptor.classes key.deserializer key.serializer
metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
rebalance.timeout.ms sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
security.providers share.acknowledgement.mode share.acquire.mode ssl.engine.factory.class
ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm transaction.two.phase.commit.enable value.deserializer value.serializer
"""
WITHOUT_EFFECT: Final = frozenset(_WITHOUT_EFFECT.split())
"""Keys that Kafka's clients know and that change nothing here."""
MEMBERS_ONLY: Final = frozenset(
    {
        *(
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "partition.assignment.strategy",
        ),
        *(
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "enable.auto.commit",
            "auto.commit.interval.ms",
        ),
    }
)
"""Keys that change something only for who joins a group."""

_warned: set[str] = set()


def has_no_effect(key: str) -> bool:
    """Whether the setting of that key changes nothing here; warns once."""
    if key not in WITHOUT_EFFECT and not key.startswith("metrics.context."):
        return False
    warn_without_effect(key)
    return True


def warn_without_effect(key: str) -> None:
    """Warn once for each setting of Kafka's clients that has no effect here."""
    if key not in _warned:
        _warned.add(key)
        warnings.warn(f"the setting {key} is known, but has no effect in sparklog", UserWarning, stacklevel=4)
