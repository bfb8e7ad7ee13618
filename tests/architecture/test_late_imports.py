"""The modules that may be imported inside a function, each with its reason; every other import is at the top.

A start of a broker, `import sparklog` and a short command spend most of their time on imports, so a module
that most of them never use is imported where it is used. Which modules those are is decided here and nowhere
else. Names that many functions need late are a table: `sparklog.client.lazy_names` has the attributes of a
package, modules among them, and `sparklog_server.broker.dispatch.import_handler` the handlers.

The milliseconds are processor time after what every start imports, the least of five.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.architecture.source_tree import Import, Module, imports_of, modules

LATE = {
    # Optional dependencies, which may not be installed.
    "cryptography": "optional; 30 ms, for encrypted private keys, PKCS #12 and client assertions",
    "fastavro": "optional; only for Avro",
    "google.protobuf": "optional; only for Protobuf and for metrics pushed by clients",
    "jwt": "optional; only for OAUTHBEARER",
    "opentelemetry": "optional; only for metrics pushed by clients and for spans",
    "polars": "optional; only for `to_polars`",
    "pyarrow": "optional; 90 ms",
    "pyspark": "optional; imported by those who have it",
    "re2": "optional; 2 ms, for patterns of clients",
    # The standard library: what it costs a start, or `import sparklog`, that never uses it.
    "asyncio": "25 ms; blocking clients have no event loop",
    "difflib": "1 ms; only to suggest a name for one that is wrong",
    "hashlib": "3 ms: it loads OpenSSL",
    "importlib": "`import sparklog` takes 0.4 ms in all",
    "importlib.metadata": "20 ms; only for the metric of the version",
    "ipaddress": "1 ms; only for access rules, quotas and connection rates by address",
    "json": "2 ms; only for lines of the log in JSON",
    "logging": "3 ms; only for clients whose program uses it",
    "pathlib": "4 ms; only for a directory that is gone",
    "shutil": "3 ms; only at the end of a temporary broker",
    "tempfile": "4 ms; only for certificates given as text",
    "tomllib": "2 ms; only for a profile",
    "traceback": "1 ms; only for a bug",
    "urllib.parse": "2 ms; only for the collector of spans",
    # sparklog: behind an optional dependency, or for some clients only.
    "sparklog.arrow.dataset": "pyarrow.dataset; only for `dataset`",
    "sparklog.arrow.formats.avro": "fastavro",
    "sparklog.arrow.formats.json_text": "pyarrow; only for values in JSON",
    "sparklog.arrow.formats.protobuf": "google.protobuf",
    "sparklog.client.admin.admin": "15 ms; only for those who administer",
    "sparklog.client.admin.configs": "only for the timeout of delegation tokens",
    "sparklog.client.admin.credentials": "only for delegation tokens",
    "sparklog.client.exactly_once.decision_log": "only for the exactly-once sink",
    "sparklog.client.sasl": "only for SASL",
    "sparklog.client.settings": "a broker is a client only to ask for a sink's decisions",
    "sparklog.client.tables": "pyarrow",
    "sparklog.client.transport.connection": "a node alone has no links",
    "sparklog.client.transport.frames": "a node alone has no links",
    "sparklog.client.transport.tls_stream": "ssl takes 8 ms; only for TLS",
    "sparklog.local_broker": "most runs of pytest use no broker",
    "sparklog.record.codec_libraries": "lz4, cramjam and zstandard take 5 ms; only for compressed batches",
    "sparklog.spark.functions": "pyspark",
    "sparklog.spark.readers": "runs in a worker of Spark",
    "sparklog.spark.source": "pyspark",
    "sparklog.spark.writers": "a query reads or writes, few do both",
    "sparklog.tls": "ssl takes 8 ms; only for TLS",
    # The broker: what a node alone, or one without security, never uses.
    "sparklog_server.broker.access.audit_log": "only with access rules",
    "sparklog_server.broker.access.audit_topic": "only if decisions are written to a topic",
    "sparklog_server.broker.access.authentication": "only for SASL",
    "sparklog_server.broker.access.basic_login": "only for HTTP with a login",
    "sparklog_server.broker.cluster.bootstrap_metadata": "only for directories that Kafka formatted",
    "sparklog_server.broker.cluster.broker_lifecycle": "imported at every start",
    "sparklog_server.broker.cluster.controller_link": "a node alone is its own controller",
    "sparklog_server.broker.cluster.raft_links": "a node alone is the only voter",
    "sparklog_server.broker.cluster.replication": "a node alone has no followers",
    "sparklog_server.broker.coordinators.resolver": "only for the exactly-once sink",
    "sparklog_server.broker.coordinators.transaction_peers": "a node alone leads every partition",
    "sparklog_server.broker.dispatch_controller": "only for listeners of controllers",
    "sparklog_server.broker.handlers.envelope": "only for listeners of controllers",
    "sparklog_server.broker.handlers.replica_fetch": "a node alone has no followers",
    "sparklog_server.broker.opening.log_recovery": "only after a crash",
    "sparklog_server.controller.timed_elections": "a node alone holds no elections",
    "sparklog_server.daemon.certificates": "only for TLS",
    "sparklog_server.daemon.handshakes": "only for TLS",
    "sparklog_server.daemon.newcomers": "only for SASL and TLS",
    "sparklog_server.daemon.peers": "a node alone has no links",
    "sparklog_server.raft.joining": "only for a node that joins the voters or moved",
    "sparklog_server.raft.reconfiguration": "only for changes of the voters",
    "sparklog_server.replica.throttle": "only where replication is throttled",
    "sparklog_server.replica.sessions": "a node alone has no followers",
    "sparklog_server.security": "each mechanism and the authorizer only where it is configured",
    # The broker: what its configuration, its parent or its manager asks for.
    "sparklog_server.broker.metrics": "only with an HTTP listener, slow requests, spans or pushed metrics",
    "sparklog_server.config.http_settings": "only for spans",
    "sparklog_server.config.units": "only for values with a unit",
    "sparklog_server.config.without_effect": "only for keys that sparklog does not have",
    "sparklog_server.daemon.documents": "only for OAUTHBEARER",
    "sparklog_server.daemon.http_listener": "only with an HTTP listener",
    "sparklog_server.daemon.parent": "only for a broker that another process embeds",
    "sparklog_server.daemon.reload": "only at SIGHUP",
    "sparklog_server.daemon.service": "only below systemd",
    "sparklog_server.daemon.span_exporter": "only for spans",
    "sparklog_server.histogram": "only with an HTTP listener",
    # The broker: what is used first after the start, when a request or a job asks for it.
    "sparklog_server.broker.consumer_sessions": "until the first Fetch with a session",
    "sparklog_server.broker.coordinators.markers": "until the first transaction ends",
    "sparklog_server.broker.coordinators.txn_marker": "until the first transaction ends",
    "sparklog_server.broker.handlers.describe_topics": "until a directory fails",
    "sparklog_server.config.describe": "until the first CreateTopics or DescribeConfigs",
    "sparklog_server.controller.acls": "until a client sends the controller a command",
    "sparklog_server.controller.administration": "until a client sends the controller a command",
    "sparklog_server.controller.alter_partition": "until the first AlterPartition",
    "sparklog_server.controller.broker_states": "only while replicas move by a plan",
    "sparklog_server.controller.controllers": "only for controllers that register",
    "sparklog_server.controller.directory_assignment": "until a partition has a directory",
    "sparklog_server.controller.refusals": "until the controller refuses a command",
    "sparklog_server.controller.tokens": "until a client sends the controller a command",
    "sparklog_server.controller.topics": "until a client sends the controller a command",
    "sparklog_server.coordinator.active_shard": "until the first partition of a coordinator is led",
    "sparklog_server.coordinator.group": "until the first group",
    "sparklog_server.coordinator.loader": "until the first partition of a coordinator is led",
    "sparklog_server.coordinator.txn.shard": "until the first transaction",
    "sparklog_server.broker.handlers.sasl": "only a node with SASL has it",
    "sparklog_server.coordinator.txn.states": "until the first transaction",
    "sparklog_server.log.cleaning.cleaner": "until a compacted log is due; it decompresses",
    "sparklog_server.log.cleaning.compaction": "until there is a compacted log",
    "sparklog_server.log.lookup.time_lookup": "until the first lookup by time; it decompresses",
    "sparklog_server.metadata.delegation_tokens": "only with delegation tokens",
    "sparklog_server.metadata.scram_secret": "only for SCRAM",
    # Commands: what the program needs before it knows the command, and what few invocations of one need.
    "duckdb": "optional; only for `sql`",
    "http.client": "20 ms; only for the pages of nodes",
    "rich.console": "20 ms; only on a terminal",
    "rich.live": "20 ms; only on a terminal",
    "rich.progress": "30 ms; only on a terminal",
    "rich.text": "20 ms; only on a terminal",
    "shlex": "0.4 ms; only for a remedy",
    "sparklog.arrow.plan": "pyarrow",
    "sparklog.column_types": "pyarrow",
    "sparklog.arrow.topic_read": "pyarrow",
    "sparklog.client.exactly_once.committer": "only to resolve transactions of the sink",
    "sparklog.errors": "the help needs none",
    "sparklog.escapes": "the help needs none",
    "sparklog.serializers": "only for values in Avro and Protobuf, and for a registry",
    "sparklog_server.cli.client_files": "only with a file of client settings",
    "sparklog_server.cli.console": "only for `start --console`",
    "sparklog_server.cli.joining": "only for `start --join`",
    "sparklog_server.cli.main": "the collector is set before the imports",
    "sparklog_server.cli.profiles": "only with a profile",
    "sparklog_server.cli.setting_names": "only for completion",
    "sparklog_server.cli.tables": "rich takes 20 ms; only on a terminal",
    "sparklog_server.cli.top_screen": "rich takes 20 ms; only for `top` itself, not for its help",
    "sparklog_server.config.client_metrics": "only for completion and wrong keys",
    "sparklog_server.config.group_keys": "only for completion and wrong keys",
    "sparklog_server.config.load": "`start` disables the collector before the imports",
    "sparklog_server.config.reload": "only with a file of settings",
    "sparklog_server.config.settings": "only for completion and wrong keys",
    "sparklog_server.config.topic_settings": "only for completion and wrong keys",
    "sparklog_server.console": "the help of `console` needs no server",
    "sparklog_server.daemon.logs": "`start` disables the collector before the imports",
    "sparklog_server.daemon.node": "`start` disables the collector before the imports",
    "sparklog_server.daemon.secure_cluster": "cryptography; only for `--secure`",
    "sparklog_server.operations.access_explained": "only for `acls explain`",
    "sparklog_server.operations.schemas": "only for values in Avro and Protobuf",
    "sparklog_server.operations.similar_names": "only for a command that does not exist",
}

IMPORTABLE_ALONE = {"sparklog.spark.shipping._restored"}
"""Functions that run where their own module cannot be imported, so all that they need is imported inside."""

SAME_MAX = 3
"""The most functions of one file that import the same late module: beyond it a table of names is clearer."""


def late_imports() -> Iterator[tuple[Module, Import]]:
    """Every import inside a function, apart from those for types."""
    for module in modules().values():
        for one in imports_of(module):
            is_exempt = f"{module.name}.{one.function}" in IMPORTABLE_ALONE
            if one.function and not one.for_types_only and not is_exempt:
                yield module, one


def is_of(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def reasons_of(imported: str) -> list[str]:
    """The entries of the table that allow a late import."""
    return [entry for entry in LATE if is_of(imported, entry)]


def test_an_import_inside_a_function_is_of_a_module_that_is_late() -> None:
    assert [
        f"{module.at(one.line)}: {one.module}: import it at the top, or give its reason in LATE"
        for module, one in late_imports()
        if not reasons_of(one.module)
    ] == []


def test_every_late_module_is_imported_inside_a_function() -> None:
    used = {entry for _, one in late_imports() for entry in reasons_of(one.module)}
    assert sorted(LATE.keys() - used) == []


def test_what_many_functions_of_a_file_import_late_is_a_table() -> None:
    functions = defaultdict[tuple[str, str], set[str]](set)
    for module, one in late_imports():
        functions[module.name, one.module].add(one.function)
    assert {key: sorted(names) for key, names in functions.items() if len(names) > SAME_MAX} == {}


def test_a_module_does_not_import_itself() -> None:
    assert Counter(module.at(one.line) for module, one in late_imports() if module.name == one.module) == {}
