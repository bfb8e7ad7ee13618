"""Kafka's broker keys that have no effect yet: known, checked, and told to do nothing when they are set.

One line is one key: name | kind | when it may change (r at a restart, b per broker, c cluster-wide) | bounds | default | what it does.
A key leaves this table for a field of `settings` in the change that gives it an effect.
"""

from .keys import Key, Kind, Update, Value

_TABLE = """\
add.partitions.to.txn.retry.backoff.max.ms | INT | r | 0.. | 100 | 
add.partitions.to.txn.retry.backoff.ms | INT | r | 1.. | 20 | 
alter.config.policy.class.name | CLASS | r | - | <none> | 
alter.log.dirs.replication.quota.window.num | INT | r | 1.. | 11 | 
alter.log.dirs.replication.quota.window.size.seconds | INT | r | 1.. | 1 | 
authorizer.class.name | STRING | r | - |  | 
auto.leader.rebalance.enable | BOOLEAN | r | - | true | 
background.threads | INT | c | 1.. | 10 | 
broker.id | INT | r | - | -1 | 
client.quota.callback.class | CLASS | r | - | <none> | 
config.providers | LIST | c | - |  | 
connection.failed.authentication.delay.ms | INT | r | 0.. | 100 | 
connections.max.reauth.ms | LONG | r | - | 0 | 
controlled.shutdown.enable | BOOLEAN | r | - | true | 
controller.performance.always.log.threshold.ms | LONG | r | 0.. | 2000 | 
controller.performance.sample.period.ms | LONG | r | 100.. | 60000 | 
controller.quorum.append.linger.ms | INT | r | 0.. | 25 | 
controller.quorum.auto.join.enable | BOOLEAN | r | - | false | 
controller.quorum.election.backoff.max.ms | INT | r | 0.. | 1000 | 
controller.quorum.election.timeout.ms | INT | r | 0.. | 1000 | 
controller.quorum.fetch.max.bytes | INT | r | 1.. | 1048576 | 
controller.quorum.fetch.snapshot.max.bytes | INT | r | 1.. | 1048576 | 
controller.quorum.fetch.timeout.ms | INT | r | 0.. | 2000 | 
controller.quorum.request.timeout.ms | INT | r | 0.. | 2000 | 
controller.quorum.retry.backoff.ms | INT | r | 0.. | 20 | 
controller.quota.window.num | INT | r | 1.. | 11 | 
controller.quota.window.size.seconds | INT | r | 1.. | 1 | 
controller.socket.timeout.ms | INT | r | - | 30000 | 
cordoned.log.dirs | LIST | b | - |  | 
create.topic.policy.class.name | CLASS | r | - | <none> | 
delegation.token.expiry.check.interval.ms | LONG | r | 1.. | 3600000 | 
delegation.token.expiry.time.ms | LONG | r | 1.. | 86400000 | 
delegation.token.max.lifetime.ms | LONG | r | 1.. | 604800000 | 
delegation.token.secret.key | PASSWORD | r | - | <none> | 
delete.records.purgatory.purge.interval.requests | INT | r | - | 1 | 
early.start.listeners | LIST | r | - | <none> | 
fetch.purgatory.purge.interval.requests | INT | r | - | 1000 | 
follower.fetch.last.tiered.offset.enable | BOOLEAN | c | - | false | 
group.consumer.assignment.interval.ms | INT | c | 0.. | 1000 | 
group.consumer.assignors | LIST | r | - | uniform,range | 
group.consumer.heartbeat.interval.ms | INT | r | 1.. | 5000 | 
group.consumer.max.assignment.interval.ms | INT | r | 0.. | 15000 | 
group.consumer.max.heartbeat.interval.ms | INT | r | 1.. | 15000 | 
group.consumer.max.session.timeout.ms | INT | r | 1.. | 60000 | 
group.consumer.max.size | INT | r | 1.. | 2147483647 | 
group.consumer.migration.policy | STRING | r | ~DISABLED/DOWNGRADE/UPGRADE/BIDIRECTIONAL | bidirectional | 
group.consumer.min.assignment.interval.ms | INT | r | 0.. | 0 | 
group.consumer.min.heartbeat.interval.ms | INT | r | 1.. | 5000 | 
group.consumer.min.session.timeout.ms | INT | r | 1.. | 45000 | 
group.consumer.regex.refresh.interval.ms | INT | r | 10000.. | 600000 | 
group.consumer.session.timeout.ms | INT | r | 1.. | 45000 | 
group.coordinator.append.linger.ms | INT | r | -1.. | -1 | 
group.coordinator.background.threads | INT | r | 1.. | 2 | 
group.coordinator.cached.buffer.max.bytes | INT | c | 524288.. | 1048588 | 
group.coordinator.rebalance.protocols | LIST | r | consumer/classic/share/streams | classic,consumer,streams | 
group.coordinator.threads | INT | r | 1.. | 4 | 
group.initial.rebalance.delay.ms | INT | r | - | 3000 | 
group.max.session.timeout.ms | INT | r | - | 1800000 | 
group.max.size | INT | r | 1.. | 2147483647 | 
group.min.session.timeout.ms | INT | r | - | 6000 | 
group.share.assignment.interval.ms | INT | c | 0.. | 1000 | 
group.share.assignors | LIST | r | - | simple | 
group.share.delivery.count.limit | INT | r | 2..10 | 5 | 
group.share.heartbeat.interval.ms | INT | r | 1.. | 5000 | 
group.share.initialize.retry.interval.ms | INT | r | 1.. | 30000 | 
group.share.max.assignment.interval.ms | INT | r | 0.. | 15000 | 
group.share.max.delivery.count.limit | INT | r | 5..25 | 10 | 
group.share.max.heartbeat.interval.ms | INT | r | 1.. | 15000 | 
group.share.max.partition.max.record.locks | INT | r | 2000..10000 | 4000 | 
group.share.max.record.lock.duration.ms | INT | r | 30000..3600000 | 60000 | 
group.share.max.session.timeout.ms | INT | r | 1.. | 60000 | 
group.share.max.share.sessions | INT | r | 1.. | 2000 | 
group.share.max.size | INT | r | 1..1000 | 200 | 
group.share.min.assignment.interval.ms | INT | r | 0.. | 0 | 
group.share.min.delivery.count.limit | INT | r | 2..5 | 2 | 
group.share.min.heartbeat.interval.ms | INT | r | 1.. | 5000 | 
group.share.min.partition.max.record.locks | INT | r | 100..2000 | 100 | 
group.share.min.record.lock.duration.ms | INT | r | 1000..30000 | 15000 | 
group.share.min.session.timeout.ms | INT | r | 1.. | 45000 | 
group.share.partition.max.record.locks | INT | r | 100..10000 | 2000 | 
group.share.persister.class.name | STRING | r | - | org.apache.kafka.server.share.persister.DefaultStatePersister | 
group.share.record.lock.duration.ms | INT | r | 1000..3600000 | 30000 | 
group.share.session.timeout.ms | INT | r | 1.. | 45000 | 
group.streams.assignment.interval.ms | INT | c | 0.. | 1000 | 
group.streams.heartbeat.interval.ms | INT | r | 1.. | 5000 | 
group.streams.initial.rebalance.delay.ms | INT | r | 0.. | 3000 | 
group.streams.max.assignment.interval.ms | INT | r | 0.. | 15000 | 
group.streams.max.heartbeat.interval.ms | INT | r | 1.. | 15000 | 
group.streams.max.session.timeout.ms | INT | r | 1.. | 60000 | 
group.streams.max.size | INT | r | 1.. | 2147483647 | 
group.streams.max.standby.replicas | INT | r | 0.. | 2 | 
group.streams.min.assignment.interval.ms | INT | r | 0.. | 0 | 
group.streams.min.heartbeat.interval.ms | INT | r | 1.. | 5000 | 
group.streams.min.session.timeout.ms | INT | r | 1.. | 45000 | 
group.streams.num.standby.replicas | INT | r | 0.. | 0 | 
group.streams.session.timeout.ms | INT | r | 1.. | 45000 | 
internal.metadata.delete.delay.millis | LONG | r | - | 60000 | 
internal.metadata.log.segment.bytes | INT | r | - | <none> | 
internal.metadata.max.batch.size.in.bytes | INT | r | - | 8388608 | 
kafka.metrics.polling.interval.secs | INT | r | 1.. | 10 | 
kafka.metrics.reporters | LIST | r | - |  | 
leader.imbalance.check.interval.seconds | LONG | r | 1.. | 300 | 
log.cleaner.backoff.ms | LONG | c | 0.. | 15000 | 
log.cleaner.dedupe.buffer.size | LONG | c | - | 134217728 | 
log.cleaner.enable | BOOLEAN | r | - | true | 
log.cleaner.io.buffer.load.factor | DOUBLE | c | - | 0.9 | 
log.cleaner.io.buffer.size | INT | c | 0.. | 524288 | 
log.cleaner.io.max.bytes.per.second | DOUBLE | c | - | 1.7976931348623157E308 | 
log.cleaner.threads | INT | c | 0.. | 1 | 
log.dir.failure.timeout.ms | LONG | r | 1.. | 30000 | 
log.initial.task.delay.ms | LONG | r | 0.. | 30000 | 
max.connection.creation.rate | INT | c | 0.. | 2147483647 | 
max.connections.per.ip.overrides | STRING | c | - |  | 
metadata.log.max.record.bytes.between.snapshots | LONG | r | 1.. | 20971520 | 
metadata.log.max.snapshot.interval.ms | LONG | r | 0.. | 3600000 | 
metadata.max.retention.ms | LONG | r | - | 604800000 | 
metric.reporters | LIST | c | - | org.apache.kafka.common.metrics.JmxReporter | 
metrics.num.samples | INT | r | 1.. | 2 | 
metrics.recording.level | STRING | r | - | INFO | 
metrics.sample.window.ms | LONG | r | 1.. | 30000 | 
num.io.threads | INT | c | 1.. | 8 | 
num.network.threads | INT | c | 1.. | 3 | 
num.recovery.threads.per.data.dir | INT | c | 1.. | 2 | 
num.replica.alter.log.dirs.threads | INT | r | - | <none> | 
num.replica.fetchers | INT | c | 1.. | 1 | 
offsets.commit.timeout.ms | INT | r | 1.. | 5000 | 
offsets.load.buffer.size | INT | r | 1.. | 5242880 | 
offsets.retention.check.interval.ms | LONG | r | 1.. | 600000 | 
offsets.retention.minutes | INT | r | 1.. | 10080 | 
offsets.topic.compression.codec | INT | r | - | 0 | 
principal.builder.class | CLASS | b | - | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | 
producer.id.expiration.check.interval.ms | INT | r | 1.. | 600000 | 
producer.purgatory.purge.interval.requests | INT | r | - | 1000 | 
queued.max.requests | INT | r | 1.. | 500 | 
quota.window.num | INT | r | 1.. | 11 | 
quota.window.size.seconds | INT | r | 1.. | 1 | 
remote.fetch.max.wait.ms | INT | c | 1.. | 500 | 
remote.list.offsets.request.timeout.ms | LONG | c | 1.. | 30000 | 
remote.log.index.file.cache.total.size.bytes | LONG | c | 1.. | 1073741824 | 
remote.log.index.file.cache.ttl.ms | LONG | r | -1.. | 900000 | 
remote.log.manager.copier.thread.pool.size | INT | c | 1.. | 10 | 
remote.log.manager.copy.max.bytes.per.second | LONG | c | 1.. | 9223372036854775807 | 
remote.log.manager.copy.quota.window.num | INT | r | 1.. | 11 | 
remote.log.manager.copy.quota.window.size.seconds | INT | r | 1.. | 1 | 
remote.log.manager.expiration.thread.pool.size | INT | c | 1.. | 10 | 
remote.log.manager.fetch.max.bytes.per.second | LONG | c | 1.. | 9223372036854775807 | 
remote.log.manager.fetch.quota.window.num | INT | r | 1.. | 11 | 
remote.log.manager.fetch.quota.window.size.seconds | INT | r | 1.. | 1 | 
remote.log.manager.follower.thread.pool.size | INT | c | 1.. | 2 | 
remote.log.manager.task.interval.ms | LONG | r | 1.. | 30000 | 
remote.log.manager.task.retry.backoff.max.ms | LONG | r | 1.. | 30000 | 
remote.log.manager.task.retry.backoff.ms | LONG | r | 1.. | 500 | 
remote.log.manager.task.retry.jitter | DOUBLE | r | 0..0.5 | 0.2 | 
remote.log.manager.thread.pool.size | INT | r | 1.. | 2 | 
remote.log.metadata.custom.metadata.max.bytes | INT | r | 0.. | 128 | 
remote.log.metadata.manager.class.name | STRING | r | - | org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | 
remote.log.metadata.manager.class.path | STRING | r | - | <none> | 
remote.log.metadata.manager.impl.prefix | STRING | r | - | rlmm.config. | 
remote.log.metadata.manager.listener.name | STRING | r | - | <none> | 
remote.log.reader.max.pending.tasks | INT | r | 1.. | 100 | 
remote.log.reader.threads | INT | c | 1.. | 10 | 
remote.log.storage.manager.class.name | STRING | r | - | <none> | 
remote.log.storage.manager.class.path | STRING | r | - | <none> | 
remote.log.storage.manager.impl.prefix | STRING | r | - | rsm.config. | 
remote.log.storage.system.enable | BOOLEAN | r | - | false | 
replica.fetch.backoff.ms | INT | r | 0.. | 1000 | 
replica.fetch.max.bytes | INT | r | 0.. | 1048576 | 
replica.fetch.min.bytes | INT | r | - | 1 | 
replica.fetch.response.max.bytes | INT | r | 0.. | 10485760 | 
replica.fetch.wait.max.ms | INT | r | - | 500 | 
replica.selector.class | STRING | r | - | <none> | 
replica.socket.receive.buffer.bytes | INT | r | - | 65536 | 
replica.socket.timeout.ms | INT | r | - | 30000 | 
replication.quota.window.num | INT | r | 1.. | 11 | 
replication.quota.window.size.seconds | INT | r | 1.. | 1 | 
request.timeout.ms | INT | r | - | 30000 | 
sasl.client.callback.handler.class | CLASS | r | - | <none> | 
sasl.enabled.mechanisms | LIST | b | - | GSSAPI | 
sasl.jaas.config | PASSWORD | b | - | <none> | 
sasl.kerberos.kinit.cmd | STRING | b | - | /usr/bin/kinit | 
sasl.kerberos.min.time.before.relogin | LONG | b | - | 60000 | 
sasl.kerberos.principal.to.local.rules | LIST | b | - | DEFAULT | 
sasl.kerberos.service.name | STRING | b | - | <none> | 
sasl.kerberos.ticket.renew.jitter | DOUBLE | b | - | 0.05 | 
sasl.kerberos.ticket.renew.window.factor | DOUBLE | b | - | 0.8 | 
sasl.login.callback.handler.class | CLASS | r | - | <none> | 
sasl.login.class | CLASS | r | - | <none> | 
sasl.login.connect.timeout.ms | INT | r | - | <none> | 
sasl.login.read.timeout.ms | INT | r | - | <none> | 
sasl.login.refresh.buffer.seconds | SHORT | b | - | 300 | 
sasl.login.refresh.min.period.seconds | SHORT | b | - | 60 | 
sasl.login.refresh.window.factor | DOUBLE | b | - | 0.8 | 
sasl.login.refresh.window.jitter | DOUBLE | b | - | 0.05 | 
sasl.login.retry.backoff.max.ms | LONG | r | - | 10000 | 
sasl.login.retry.backoff.ms | LONG | r | - | 100 | 
sasl.mechanism.controller.protocol | STRING | r | - | GSSAPI | 
sasl.mechanism.inter.broker.protocol | STRING | b | - | GSSAPI | 
sasl.oauthbearer.assertion.algorithm | STRING | r | ~ES256/RS256 | RS256 | 
sasl.oauthbearer.assertion.claim.aud | STRING | r | - | <none> | 
sasl.oauthbearer.assertion.claim.exp.seconds | INT | r | 0..86400 | 300 | 
sasl.oauthbearer.assertion.claim.iss | STRING | r | - | <none> | 
sasl.oauthbearer.assertion.claim.jti.include | BOOLEAN | r | - | false | 
sasl.oauthbearer.assertion.claim.nbf.seconds | INT | r | 0..3600 | 60 | 
sasl.oauthbearer.assertion.claim.sub | STRING | r | - | <none> | 
sasl.oauthbearer.assertion.file | STRING | r | - | <none> | 
sasl.oauthbearer.assertion.private.key.file | STRING | r | - | <none> | 
sasl.oauthbearer.assertion.private.key.passphrase | PASSWORD | r | - | <none> | 
sasl.oauthbearer.assertion.template.file | STRING | r | - | <none> | 
sasl.oauthbearer.client.credentials.client.id | STRING | r | - | <none> | 
sasl.oauthbearer.client.credentials.client.secret | PASSWORD | r | - | <none> | 
sasl.oauthbearer.clock.skew.seconds | INT | r | - | 30 | 
sasl.oauthbearer.expected.audience | LIST | r | - |  | 
sasl.oauthbearer.expected.issuer | STRING | r | - | <none> | 
sasl.oauthbearer.jwks.endpoint.refresh.ms | LONG | r | - | 3600000 | 
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | LONG | r | - | 10000 | 
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | LONG | r | - | 100 | 
sasl.oauthbearer.jwks.endpoint.url | STRING | r | - | <none> | 
sasl.oauthbearer.jwt.retriever.class | CLASS | r | - | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | 
sasl.oauthbearer.jwt.validator.class | CLASS | r | - | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | 
sasl.oauthbearer.scope | STRING | r | - | <none> | 
sasl.oauthbearer.scope.claim.name | STRING | r | - | scope | 
sasl.oauthbearer.sub.claim.name | STRING | r | - | sub | 
sasl.oauthbearer.token.endpoint.url | STRING | r | - | <none> | 
sasl.server.callback.handler.class | CLASS | r | - | <none> | 
sasl.server.max.receive.size | INT | r | - | 524288 | 
security.inter.broker.protocol | STRING | r | PLAINTEXT/SSL/SASL_PLAINTEXT/SASL_SSL | PLAINTEXT | 
security.providers | STRING | r | - | <none> | 
server.max.startup.time.ms | LONG | r | 0.. | 9223372036854775807 | 
share.coordinator.append.linger.ms | INT | r | -1.. | -1 | 
share.coordinator.cached.buffer.max.bytes | INT | c | 524288.. | 1048588 | 
share.coordinator.cold.partition.snapshot.interval.ms | INT | r | 1.. | 300000 | 
share.coordinator.load.buffer.size | INT | r | 1.. | 5242880 | 
share.coordinator.snapshot.update.records.per.snapshot | INT | r | 0..500 | 500 | 
share.coordinator.state.topic.compression.codec | INT | r | - | 0 | 
share.coordinator.state.topic.min.isr | SHORT | r | 1.. | 2 | 
share.coordinator.state.topic.num.partitions | INT | r | 1.. | 50 | 
share.coordinator.state.topic.prune.interval.ms | INT | r | 1.. | 300000 | 
share.coordinator.state.topic.replication.factor | SHORT | r | 1.. | 3 | 
share.coordinator.state.topic.segment.bytes | INT | r | 1.. | 104857600 | 
share.coordinator.threads | INT | r | 1.. | 1 | 
share.coordinator.write.timeout.ms | INT | r | 1.. | 5000 | 
share.fetch.purgatory.purge.interval.requests | INT | r | - | 1000 | 
socket.connection.setup.timeout.max.ms | LONG | r | - | 30000 | 
socket.connection.setup.timeout.ms | LONG | r | - | 10000 | 
ssl.allow.dn.changes | BOOLEAN | r | - | false | 
ssl.allow.san.changes | BOOLEAN | r | - | false | 
ssl.cipher.suites | LIST | b | - |  | 
ssl.client.auth | STRING | b | required/requested/none | none | 
ssl.enabled.protocols | LIST | b | - | TLSv1.2,TLSv1.3 | 
ssl.endpoint.identification.algorithm | STRING | b | - | https | 
ssl.engine.factory.class | CLASS | b | - | <none> | 
ssl.key.password | PASSWORD | b | - | <none> | 
ssl.keymanager.algorithm | STRING | b | - | SunX509 | 
ssl.keystore.certificate.chain | PASSWORD | b | - | <none> | 
ssl.keystore.key | PASSWORD | b | - | <none> | 
ssl.keystore.location | STRING | b | - | <none> | 
ssl.keystore.password | PASSWORD | b | - | <none> | 
ssl.keystore.type | STRING | b | - | JKS | 
ssl.principal.mapping.rules | STRING | r | - | DEFAULT | 
ssl.protocol | STRING | b | - | TLSv1.3 | 
ssl.provider | STRING | b | - | <none> | 
ssl.secure.random.implementation | STRING | b | - | <none> | 
ssl.trustmanager.algorithm | STRING | b | - | PKIX | 
ssl.truststore.certificates | PASSWORD | b | - | <none> | 
ssl.truststore.location | STRING | b | - | <none> | 
ssl.truststore.password | PASSWORD | b | - | <none> | 
ssl.truststore.type | STRING | b | - | JKS | 
telemetry.max.bytes | INT | r | 1.. | 1048576 | 
transaction.abort.timed.out.transaction.cleanup.interval.ms | INT | r | 1.. | 10000 | 
transaction.max.timeout.ms | INT | r | 1.. | 900000 | 
transaction.partition.verification.enable | BOOLEAN | c | - | true | 
transaction.remove.expired.transaction.cleanup.interval.ms | INT | r | 1.. | 3600000 | 
transaction.state.log.load.buffer.size | INT | r | 1.. | 5242880 | 
transaction.two.phase.commit.enable | BOOLEAN | r | - | false | 
transactional.id.expiration.ms | INT | r | 1.. | 604800000 | 
unclean.leader.election.interval.ms | LONG | r | 1.. | 300000 | 
unstable.api.versions.enable | BOOLEAN | r | - | false | 
unstable.feature.versions.enable | BOOLEAN | r | - | false | 
"""

_UPDATES = {"r": Update.READ_ONLY, "b": Update.PER_BROKER, "c": Update.CLUSTER_WIDE}
_LISTENER_PREFIX = "listener.name."


def _read(table: str) -> dict[str, tuple[Key, Value]]:
    """(key, default) by name."""
    keys: dict[str, tuple[Key, Value]] = {}
    for line in table.splitlines():
        name, kind, update, bounds, default, doc = (part.strip() for part in line.split(" | ", 5))
        at_least, at_most, choices = _bounds(bounds)
        key = Key(name, Kind[kind], doc, at_least, at_most, choices=choices, update=_UPDATES[update], has_effect=False)
        keys[name] = (key, None if default == "<none>" else key.parse(default))
    return keys


def _bounds(text: str) -> tuple[float | None, float | None, tuple[str, ...]]:
    if ".." in text:
        low, _, high = text.partition("..")
        return float(low) if "." in low else int(low), None if not high else float(high) if "." in high else int(high), ()
    # `~` marks words that Kafka takes in any case; as they have no effect here, any text passes.
    return None, None, () if text == "-" or text.startswith("~") else tuple(text.split("/"))


KEYS = _read(_TABLE)
"""(key, default) by name."""


def known_without_effect(name: str) -> Key | None:
    """The key of that name, also with a listener's prefix (`listener.name.internal.ssl.keystore.location`); None if nobody knows it."""
    if name in KEYS:
        return KEYS[name][0]
    if name.startswith(_LISTENER_PREFIX):
        parts = name.split(".")
        for first in range(3, len(parts)):
            if (found := KEYS.get(".".join(parts[first:]))) is not None:
                return found[0]
    # Kafka hands keys with these prefixes to plug-ins unread.
    if name.startswith(("rsm.config.", "rlmm.config.", "config.providers.")):
        return Key(name, Kind.STRING, "Handed to a plug-in.", has_effect=False)
    return None
