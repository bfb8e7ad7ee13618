"""Kafka's broker keys that have no effect yet: they are checked, and setting one causes a warning.

One line is one key, and indented lines continue the line before:

    name | kind | r, b or c | bounds | default | description

The third column says when the key may change: r at a restart, b per broker, c cluster-wide.

A key leaves this table for a field of `settings` in the change that gives it an effect.
"""

from .keys import Key, Kind, Update, Value
from .listeners import LISTENER_PREFIX

_TABLE = """\
alter.config.policy.class.name | CLASS | r | - | <none> | A Java class that judges changes of settings.
alter.log.dirs.replication.quota.window.num | INT | r | 1.. | 11 | How many samples the quota on moves between data directories remembers.
alter.log.dirs.replication.quota.window.size.seconds | INT | r | 1.. | 1 | How long one sample of that quota lasts.
background.threads | INT | c | 1.. | 10 | Threads for background work; here jobs have a pool of their own.
broker.id | INT | r | - | -1 | The old name of `node.id`.
client.quota.callback.class | CLASS | r | - | <none> | A Java class that computes client quotas.
config.providers | LIST | c | - |  | Aliases of Java classes that look values up elsewhere.
controlled.shutdown.enable | BOOLEAN | r | - | true | Hand leaderships over before a stop.
controller.performance.always.log.threshold.ms | LONG | r | 0.. | 2000 | A decision of the controller that takes longer than this is logged.
controller.performance.sample.period.ms | LONG | r | 100.. | 60000 | How often figures of the controller's speed are logged.
controller.quorum.append.linger.ms | INT | r | 0.. | 25 |
    How long the leader of the quorum gathers records before a sync; in sparklog the records that arrive during a sync share the next one.
controller.socket.timeout.ms | INT | r | - | 30000 | How long a connection to the controller may take to answer.
create.topic.policy.class.name | CLASS | r | - | <none> | A Java class that judges new topics.
delete.records.purgatory.purge.interval.requests | INT | r | - | 1 |
    After how many requests Kafka sweeps parked DeleteRecords; nothing piles up here.
early.start.listeners | LIST | r | - | <none> | Listeners that open before the authorizer is ready.
fetch.purgatory.purge.interval.requests | INT | r | - | 1000 | After how many requests Kafka sweeps parked Fetches; nothing piles up here.
follower.fetch.last.tiered.offset.enable | BOOLEAN | c | - | false | Let an empty follower begin behind what lies in tiered storage.
group.consumer.max.assignment.interval.ms | INT | r | 0.. | 15000 | The longest assignment interval a consumer group may set.
group.consumer.min.assignment.interval.ms | INT | r | 0.. | 0 | The shortest assignment interval a consumer group may set.
group.coordinator.append.linger.ms | INT | r | -1.. | -1 | How long the group coordinator gathers records before an append; -1 adapts.
group.coordinator.background.threads | INT | r | 1.. | 2 | Threads for background work of the group coordinator.
group.coordinator.cached.buffer.max.bytes | INT | c | 524288.. | 1048588 |
    The largest buffer the group coordinator keeps for its next append.
group.coordinator.rebalance.protocols | LIST | r | consumer/classic/share/streams | classic,consumer,streams |
    The group protocols that are served.
group.coordinator.threads | INT | r | 1.. | 4 | Threads of the group coordinator.
group.share.assignment.interval.ms | INT | c | 0.. | 1000 | The shortest time between two assignments of a share group.
group.share.assignors | LIST | r | - | simple | How a share group shares partitions out: the first is the default.
group.share.delivery.count.limit | INT | r | 2..10 | 5 | How often a record is delivered to a share group before it is given up.
group.share.heartbeat.interval.ms | INT | r | 1.. | 5000 | How often the members of a share group are to report.
group.share.initialize.retry.interval.ms | INT | r | 1.. | 30000 | The pause before the state of a share group is initialized again.
group.share.max.assignment.interval.ms | INT | r | 0.. | 15000 | The longest assignment interval a share group may set.
group.share.max.delivery.count.limit | INT | r | 5..25 | 10 | The highest delivery count limit a share group may set.
group.share.max.heartbeat.interval.ms | INT | r | 1.. | 15000 | The longest heartbeat interval a share group may set.
group.share.max.partition.max.record.locks | INT | r | 2000..10000 | 4000 |
    The highest limit of locked records per share partition that a group may set.
group.share.max.record.lock.duration.ms | INT | r | 30000..3600000 | 60000 | The longest lock of a record that a share group may set.
group.share.max.session.timeout.ms | INT | r | 1.. | 60000 | The longest session timeout a share group may set.
group.share.max.share.sessions | INT | r | 1.. | 2000 | The most share sessions of a broker.
group.share.max.size | INT | r | 1..1000 | 200 | The most members of a share group.
group.share.min.assignment.interval.ms | INT | r | 0.. | 0 | The shortest assignment interval a share group may set.
group.share.min.delivery.count.limit | INT | r | 2..5 | 2 | The lowest delivery count limit a share group may set.
group.share.min.heartbeat.interval.ms | INT | r | 1.. | 5000 | The shortest heartbeat interval a share group may set.
group.share.min.partition.max.record.locks | INT | r | 100..2000 | 100 |
    The lowest limit of locked records per share partition that a group may set.
group.share.min.record.lock.duration.ms | INT | r | 1000..30000 | 15000 | The shortest lock of a record that a share group may set.
group.share.min.session.timeout.ms | INT | r | 1.. | 45000 | The shortest session timeout a share group may set.
group.share.partition.max.record.locks | INT | r | 100..10000 | 2000 | How many records of a share partition may be locked at once.
group.share.persister.class.name | STRING | r | - | org.apache.kafka.server.share.persister.DefaultStatePersister |
    The Java class that keeps the state of share groups.
group.share.record.lock.duration.ms | INT | r | 1000..3600000 | 30000 | How long a share consumer holds a record before others may have it.
group.share.session.timeout.ms | INT | r | 1.. | 45000 | How long a member of a share group may be silent before it is out.
group.streams.assignment.interval.ms | INT | c | 0.. | 1000 | The shortest time between two assignments of a streams group.
group.streams.heartbeat.interval.ms | INT | r | 1.. | 5000 | How often the members of a streams group are to report.
group.streams.initial.rebalance.delay.ms | INT | r | 0.. | 3000 |
    How long a new streams group waits for more members before its first assignment.
group.streams.max.assignment.interval.ms | INT | r | 0.. | 15000 | The longest assignment interval a streams group may set.
group.streams.max.heartbeat.interval.ms | INT | r | 1.. | 15000 | The longest heartbeat interval a streams group may set.
group.streams.max.session.timeout.ms | INT | r | 1.. | 60000 | The longest session timeout a streams group may set.
group.streams.max.size | INT | r | 1.. | 2147483647 | The most members of a streams group.
group.streams.max.standby.replicas | INT | r | 0.. | 2 | The most standby replicas a streams group may ask for.
group.streams.min.assignment.interval.ms | INT | r | 0.. | 0 | The shortest assignment interval a streams group may set.
group.streams.min.heartbeat.interval.ms | INT | r | 1.. | 5000 | The shortest heartbeat interval a streams group may set.
group.streams.min.session.timeout.ms | INT | r | 1.. | 45000 | The shortest session timeout a streams group may set.
group.streams.num.standby.replicas | INT | r | 0.. | 0 | The standby replicas of each task of a streams group.
group.streams.session.timeout.ms | INT | r | 1.. | 45000 | How long a member of a streams group may be silent before it is out.
internal.metadata.delete.delay.millis | LONG | r | - | 60000 | How long a dropped metadata segment waits before it is unlinked, for tests.
internal.metadata.log.segment.bytes | INT | r | - | <none> | A metadata segment size below the public minimum, for tests.
internal.metadata.max.batch.size.in.bytes | INT | r | - | 8388608 | The largest batch of the metadata log, for tests.
kafka.metrics.polling.interval.secs | INT | r | 1.. | 10 | How often Kafka's own metrics reporters are called.
kafka.metrics.reporters | LIST | r | - |  | Java classes that report metrics.
log.cleaner.io.buffer.size | INT | c | 0.. | 524288 | The memory of compaction for reading and writing, over all threads.
log.dir.failure.timeout.ms | LONG | r | 1.. | 30000 | How long a broker that cannot report a failed data directory goes on before it stops.
max.connections.per.ip.overrides | STRING | c | - |  | Other limits for certain addresses, as address:count, comma separated.
metric.reporters | LIST | c | - | org.apache.kafka.common.metrics.JmxReporter | Java classes that report metrics.
metrics.num.samples | INT | r | 1.. | 2 | How many samples a rate is computed from.
metrics.recording.level | STRING | r | - | INFO | How much is measured: INFO, DEBUG or TRACE.
metrics.sample.window.ms | LONG | r | 1.. | 30000 | How long one sample of a rate lasts.
num.io.threads | INT | c | 1.. | 8 | Threads that serve requests; here one loop serves them all.
num.network.threads | INT | c | 1.. | 3 | Threads that serve sockets; here one loop serves them all.
num.recovery.threads.per.data.dir | INT | c | 1.. | 2 | Threads for each data directory that recover logs at the start.
num.replica.alter.log.dirs.threads | INT | r | - | <none> | Threads that move replicas between data directories.
num.replica.fetchers | INT | c | 1.. | 1 | Fetchers for each broker that is followed.
offsets.commit.timeout.ms | INT | r | 1.. | 5000 | How long an offset commit waits for the replicas of `__consumer_offsets`.
offsets.load.buffer.size | INT | r | 1.. | 5242880 | How much of `__consumer_offsets` is read at a time when a coordinator starts.
offsets.topic.compression.codec | INT | r | - | 0 | The codec of `__consumer_offsets`, by number; 0 is none.
principal.builder.class | CLASS | b | - | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder |
    The Java class that names a connection's principal.
producer.id.expiration.check.interval.ms | INT | r | 1.. | 600000 | How often silent idempotent producers are looked for.
producer.purgatory.purge.interval.requests | INT | r | - | 1000 |
    After how many requests Kafka sweeps parked Produces; nothing piles up here.
queued.max.requests | INT | r | 1.. | 500 |
    How many requests Kafka queues before it stops reading; `queued.max.request.bytes` bounds them here.
remote.fetch.max.wait.ms | INT | c | 1.. | 500 | How long a Fetch waits for tiered storage.
remote.list.offsets.request.timeout.ms | LONG | c | 1.. | 30000 | How long a ListOffsets waits for tiered storage.
remote.log.index.file.cache.total.size.bytes | LONG | c | 1.. | 1073741824 | The room for index files fetched from tiered storage.
remote.log.index.file.cache.ttl.ms | LONG | r | -1.. | 900000 | How long an unused index file from tiered storage is kept.
remote.log.manager.copier.thread.pool.size | INT | c | 1.. | 10 | Threads that copy segments to tiered storage.
remote.log.manager.copy.max.bytes.per.second | LONG | c | 1.. | 9223372036854775807 | The most bytes copied to tiered storage each second.
remote.log.manager.copy.quota.window.num | INT | r | 1.. | 11 | How many samples that quota remembers.
remote.log.manager.copy.quota.window.size.seconds | INT | r | 1.. | 1 | How long one sample of that quota lasts.
remote.log.manager.expiration.thread.pool.size | INT | c | 1.. | 10 | Threads that drop expired segments from tiered storage.
remote.log.manager.fetch.max.bytes.per.second | LONG | c | 1.. | 9223372036854775807 |
    The most bytes fetched from tiered storage each second.
remote.log.manager.fetch.quota.window.num | INT | r | 1.. | 11 | How many samples that quota remembers.
remote.log.manager.fetch.quota.window.size.seconds | INT | r | 1.. | 1 | How long one sample of that quota lasts.
remote.log.manager.follower.thread.pool.size | INT | c | 1.. | 2 | Threads by which followers learn what lies in tiered storage.
remote.log.manager.task.interval.ms | LONG | r | 1.. | 30000 | How often tiered storage is attended to.
remote.log.manager.task.retry.backoff.max.ms | LONG | r | 1.. | 30000 | The longest pause before a failed tiered task is tried again.
remote.log.manager.task.retry.backoff.ms | LONG | r | 1.. | 500 | The first pause before a failed tiered task is tried again.
remote.log.manager.task.retry.jitter | DOUBLE | r | 0..0.5 | 0.2 | The random share of that pause.
remote.log.manager.thread.pool.size | INT | r | 1.. | 2 | The old name of `remote.log.manager.follower.thread.pool.size`.
remote.log.metadata.custom.metadata.max.bytes | INT | r | 0.. | 128 | The most metadata a tiered storage plug-in may add to a segment.
remote.log.metadata.manager.class.name | STRING | r | - |
    org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | The Java class for its metadata.
remote.log.metadata.manager.class.path | STRING | r | - | <none> | Where that class is found.
remote.log.metadata.manager.impl.prefix | STRING | r | - | rlmm.config. | The prefix of keys that are handed to that class.
remote.log.metadata.manager.listener.name | STRING | r | - | <none> | The listener by which that class reaches the broker.
remote.log.reader.max.pending.tasks | INT | r | 1.. | 100 | How many reads of tiered storage may wait.
remote.log.reader.threads | INT | c | 1.. | 10 | Threads that read tiered storage.
remote.log.storage.manager.class.name | STRING | r | - | <none> | The Java class that is the tiered storage.
remote.log.storage.manager.class.path | STRING | r | - | <none> | Where that class is found.
remote.log.storage.manager.impl.prefix | STRING | r | - | rsm.config. | The prefix of keys that are handed to that class.
remote.log.storage.system.enable | BOOLEAN | r | - | false | Use tiered storage.
replica.socket.receive.buffer.bytes | INT | r | - | 65536 | The socket receive buffer of a follower.
replication.quota.window.num | INT | r | 1.. | 11 | How many samples the replication quota remembers.
replication.quota.window.size.seconds | INT | r | 1.. | 1 | How long one sample of the replication quota lasts.
request.timeout.ms | INT | r | - | 30000 | How long an answer of another node is waited for.
sasl.client.callback.handler.class | CLASS | r | - | <none> | A Java class for the client side of SASL.
sasl.kerberos.kinit.cmd | STRING | b | - | /usr/bin/kinit | Where the command kinit is found.
sasl.kerberos.min.time.before.relogin | LONG | b | - | 60000 | The shortest pause between two Kerberos logins.
sasl.kerberos.principal.to.local.rules | LIST | b | - | DEFAULT | Rules that turn Kerberos names into short names.
sasl.kerberos.service.name | STRING | b | - | <none> | The Kerberos name that brokers run under.
sasl.kerberos.ticket.renew.jitter | DOUBLE | b | - | 0.05 | The random share of the time until a ticket is renewed.
sasl.kerberos.ticket.renew.window.factor | DOUBLE | b | - | 0.8 | The share of a ticket's life after which it is renewed.
sasl.login.callback.handler.class | CLASS | r | - | <none> | A Java class for SASL logins.
sasl.login.class | CLASS | r | - | <none> | A Java class for SASL logins.
sasl.login.connect.timeout.ms | INT | r | - | <none> | How long a connection to the provider of tokens may take.
sasl.login.read.timeout.ms | INT | r | - | <none> | How long an answer of the provider of tokens may take.
sasl.login.refresh.buffer.seconds | SHORT | b | - | 300 | How long before its end a token is renewed at the latest.
sasl.login.refresh.min.period.seconds | SHORT | b | - | 60 | The shortest time between two renewals of a token.
sasl.login.refresh.window.factor | DOUBLE | b | - | 0.8 | The share of a token's life after which it is renewed.
sasl.login.refresh.window.jitter | DOUBLE | b | - | 0.05 | The random share of that time.
sasl.login.retry.backoff.max.ms | LONG | r | - | 10000 | The longest pause before a failed login is tried again.
sasl.login.retry.backoff.ms | LONG | r | - | 100 | The first pause before a failed login is tried again.
sasl.oauthbearer.assertion.algorithm | STRING | r | ~ES256/RS256 | RS256 | The algorithm that signs an assertion.
sasl.oauthbearer.assertion.claim.aud | STRING | r | - | <none> | The audience that an assertion names.
sasl.oauthbearer.assertion.claim.exp.seconds | INT | r | 0..86400 | 300 | How long an assertion is valid.
sasl.oauthbearer.assertion.claim.iss | STRING | r | - | <none> | The issuer that an assertion names.
sasl.oauthbearer.assertion.claim.jti.include | BOOLEAN | r | - | false | Give each assertion an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds | INT | r | 0..3600 | 60 | How long before it is made an assertion is already valid.
sasl.oauthbearer.assertion.claim.sub | STRING | r | - | <none> | The subject that an assertion names.
sasl.oauthbearer.assertion.file | STRING | r | - | <none> | A file with a finished assertion.
sasl.oauthbearer.assertion.private.key.file | STRING | r | - | <none> | The file of the key that signs an assertion.
sasl.oauthbearer.assertion.private.key.passphrase | PASSWORD | r | - | <none> | The passphrase of that key.
sasl.oauthbearer.assertion.template.file | STRING | r | - | <none> | A file with further claims of an assertion.
sasl.oauthbearer.client.credentials.client.id | STRING | r | - | <none> | The client id told to the provider of tokens.
sasl.oauthbearer.client.credentials.client.secret | PASSWORD | r | - | <none> | The client secret told to the provider of tokens.
sasl.oauthbearer.jwt.retriever.class | CLASS | r | - | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever |
    A Java class that fetches tokens.
sasl.oauthbearer.jwt.validator.class | CLASS | r | - | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator |
    A Java class that checks tokens.
sasl.oauthbearer.scope | STRING | r | - | <none> | The scope asked of the provider of tokens.
sasl.oauthbearer.token.endpoint.url | STRING | r | - | <none> | Where the provider hands out tokens.
sasl.server.callback.handler.class | CLASS | r | - | <none> | A Java class for the server side of SASL.
security.providers | STRING | r | - | <none> | Java classes of cryptography.
server.max.startup.time.ms | LONG | r | 0.. | 9223372036854775807 | How long a start may take, for tests.
share.coordinator.append.linger.ms | INT | r | -1.. | -1 | How long the share coordinator gathers records before an append; -1 adapts.
share.coordinator.cached.buffer.max.bytes | INT | c | 524288.. | 1048588 |
    The largest buffer the share coordinator keeps for its next append.
share.coordinator.cold.partition.snapshot.interval.ms | INT | r | 1.. | 300000 |
    How often a quiet share partition gets a snapshot of its state.
share.coordinator.load.buffer.size | INT | r | 1.. | 5242880 |
    How much of `__share_group_state` is read at a time when a coordinator starts.
share.coordinator.snapshot.update.records.per.snapshot | INT | r | 0..500 | 500 | How many updates of a share partition follow one snapshot.
share.coordinator.state.topic.compression.codec | INT | r | - | 0 | The codec of `__share_group_state`, by number; 0 is none.
share.coordinator.state.topic.min.isr | SHORT | r | 1.. | 2 | The in-sync replicas `__share_group_state` needs.
share.coordinator.state.topic.num.partitions | INT | r | 1.. | 50 | The partitions of `__share_group_state`; not to be changed later.
share.coordinator.state.topic.prune.interval.ms | INT | r | 1.. | 300000 |
    How often records of `__share_group_state` that are no longer needed are dropped.
share.coordinator.state.topic.replication.factor | SHORT | r | 1.. | 3 | The replicas of `__share_group_state`.
share.coordinator.state.topic.segment.bytes | INT | r | 1.. | 104857600 | The segment size of `__share_group_state`.
share.coordinator.threads | INT | r | 1.. | 1 | Threads of the share coordinator.
share.coordinator.write.timeout.ms | INT | r | 1.. | 5000 | How long a write waits for the replicas of `__share_group_state`.
share.fetch.purgatory.purge.interval.requests | INT | r | - | 1000 |
    After how many requests Kafka sweeps parked ShareFetches; nothing piles up here.
socket.connection.setup.timeout.max.ms | LONG | r | - | 30000 | The longest time given to a new connection to another node.
socket.connection.setup.timeout.ms | LONG | r | - | 10000 | The time first given to a new connection to another node.
ssl.engine.factory.class | CLASS | b | - | <none> | A Java class that makes TLS engines.
ssl.keymanager.algorithm | STRING | b | - | SunX509 | Java's algorithm for key managers.
ssl.protocol | STRING | b | - | TLSv1.3 | The newest version of TLS that is tried.
ssl.provider | STRING | b | - | <none> | Java's provider of TLS.
ssl.secure.random.implementation | STRING | b | - | <none> | Java's source of random numbers for TLS.
ssl.trustmanager.algorithm | STRING | b | - | PKIX | Java's algorithm for trust managers.
transaction.state.log.load.buffer.size | INT | r | 1.. | 5242880 |
    How much of `__transaction_state` is read at a time when a coordinator starts.
unstable.api.versions.enable | BOOLEAN | r | - | false | Serve versions of APIs that Kafka has not released.
unstable.feature.versions.enable | BOOLEAN | r | - | false | Allow levels of features that Kafka has not released.
"""  # noqa: E501

_UPDATES = {"r": Update.READ_ONLY, "b": Update.PER_BROKER, "c": Update.CLUSTER_WIDE}


def _read(table: str) -> dict[str, tuple[Key, Value]]:
    """(key, default) by name."""
    keys: dict[str, tuple[Key, Value]] = {}
    for line in table.replace("\n    ", " ").splitlines():
        name, kind, update, bounds, default, doc = (part.strip() for part in line.split(" | ", 5))
        at_least, at_most, choices = _bounds(bounds)
        key = Key(
            name,
            Kind[kind],
            doc,
            at_least,
            at_most,
            choices=choices,
            update=_UPDATES[update],
            has_effect=False,
        )
        keys[name] = (key, None if default == "<none>" else key.parse(default))
    return keys


def _bounds(text: str) -> tuple[float | None, float | None, tuple[str, ...]]:
    if ".." in text:
        low, _, high = text.partition("..")
        return (
            float(low) if "." in low else int(low),
            None if not high else float(high) if "." in high else int(high),
            (),
        )
    # `~` marks words that Kafka takes in any case; as they have no effect here, any text passes.
    return None, None, () if text == "-" or text.startswith("~") else tuple(text.split("/"))


KEYS = _read(_TABLE)
"""(key, default) by name."""


def known_without_effect(name: str) -> Key | None:
    """The key of that name, also with a listener's prefix (`listener.name.internal.ssl.keystore.location`);
    None if it is unknown.
    """
    if name in KEYS:
        return KEYS[name][0]
    if name.startswith(LISTENER_PREFIX):
        parts = name.split(".")
        for first in range(3, len(parts)):
            if (found := KEYS.get(".".join(parts[first:]))) is not None:
                return found[0]
    # Kafka hands keys with these prefixes to plug-ins unread.
    if name.startswith(("rsm.config.", "rlmm.config.", "config.providers.")):
        return Key(name, Kind.STRING, "Handed to a plug-in.", has_effect=False)
    return None
