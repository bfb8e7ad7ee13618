"""The directory of a secure cluster, as `sparklog init --secure` writes it: mode 0700, its files 0600.

    ca.pem, ca-key.pem            the authority: its certificate, which clients trust, and its private key
    node-<id>.pem                 the private key and the certificate of a node
    node-<id>.properties          its settings, for `sparklog start --config`
    node-<id>/                    its data directory, formatted
    client.properties, .conf, .toml   settings of clients: Kafka's names, librdkafka's, those of Python

    CLIENT      SASL_SSL: clients, by SCRAM-SHA-512
    BROKER      SSL with a certificate of the authority: brokers among themselves
    CONTROLLER  SSL with a certificate of the authority: the metadata quorum, whose log has the passwords

The files name each other by absolute paths: on another machine, a node needs its own files in the same place.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sparklog.errors import SettingsError
from sparklog.model import Millis
from sparklog.wire.schema import Message
from sparklog_server.broker.opening.formatting import format_node, initial_controllers
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from sparklog_server.config.http_settings import of_node
from sparklog_server.config.listeners import Listener, joined
from sparklog_server.config.load import load
from sparklog_server.config.quorum_settings import BOOTSTRAP_KEY
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_properties
from sparklog_server.disk.door import Disk
from sparklog_server.log.directory.identity import META_FILE, DirectoryRefused, encode_uuid, new_uuid
from sparklog_server.security.scram_arguments import parse_scram

from .authority import OWN_NAMES, Authority, checked_host, joined_authorities, replace_file, write_file
from .local_cluster import (
    NODES_MAX,
    REPLICAS,
    LocalCluster,
    Reserve,
    as_options,
    check_base_port,
    remedy_of,
    replication_defaults,
)

AUTHORITY_FILE: Final = "ca.pem"
AUTHORITY_KEY_FILE: Final = "ca-key.pem"
ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
_PASSWORD_BYTES: Final = 24
_LOCAL: Final = "127.0.0.1"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureNode(NamedTuple):
    """A node: its host as others reach it, its ports, and the names in its certificate."""

    node_id: int
    host: str
    client: int
    controller: int
    broker: int
    names: tuple[str, ...]

    @property
    def principal(self) -> str:
        """The principal that its certificate gives."""
        return f"User:CN=node-{self.node_id}"


def init_secure(
    disk: Disk,
    directory: Path,
    *,
    count: int,
    hosts: Sequence[str],
    base_port: int,
    reserve: Reserve,
    given: Mapping[str, str] | None = None,
) -> list[SecureNode]:
    """Write the files of a new cluster of `count` nodes into an empty directory and format its nodes. With
    as many hosts as nodes, each node is on its own; otherwise all are on the first. `given` are more settings
    of each node; on one machine, the port of an HTTP listener goes up from node to node. Raises
    SettingsError, DirectoryRefused, StorageError, and what `reserve` raises.
    """
    directory = directory.absolute()
    nodes = _placed(count, [checked_host(host) for host in hosts], base_port, reserve)
    is_spread = len({node.host for node in nodes}) > 1
    texts = {}
    for index, node in enumerate(nodes):
        overrides = [f"{key}={value}" for key, value in (given or {}).items()]
        own = [] if is_spread else of_node(overrides, index, reserve)
        http = dict(one.split("=", 1) for one in own)
        texts[node] = _node_settings(directory, node, nodes) | dict(given or {}) | http
    settings = [BrokerSettings.of(text) for text in texts.values()]
    _prepare(directory)
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    with _private_files():
        authority = new_authority()
        write_file(directory / AUTHORITY_FILE, authority.pem)
        write_file(directory / AUTHORITY_KEY_FILE, authority.key_pem)
        for node in nodes:
            pem = authority.issue(f"node-{node.node_id}", (*node.names, *OWN_NAMES))
            write_file(directory / f"node-{node.node_id}.pem", pem)
            write_file(directory / f"node-{node.node_id}.properties", _properties(texts[node]))
        servers = ",".join(joined(node.host, node.client) for node in nodes)
        for name, content in _client_files(directory, servers, password).items():
            write_file(directory / name, content)
        _format(disk, nodes, settings, password)
    return nodes


def open_secure(disk: Disk, directory: Path, assignments: Sequence[str] = ()) -> LocalCluster:
    """The cluster of the files `node-<id>.properties` in a directory. Raises SettingsError,
    DirectoryRefused, StorageError.
    """
    paths = sorted(directory.glob("node-*.properties"), key=lambda path: (len(path.name), path.name))
    if not paths:
        raise SettingsError(
            f"{directory} has no file node-<id>.properties: `sparklog init --secure {directory}` writes them"
        )
    given = [[*assignments, *of_node(assignments, index, lambda port: port)] for index in range(len(paths))]
    loaded = [load(str(path), own) for path, own in zip(paths, given, strict=True)]
    nodes = sorted(loaded, key=lambda one: one.settings.node_id)
    ids = [one.settings.node_id for one in nodes]
    if len(set(ids)) != len(ids):
        raise SettingsError(f"{directory}: two of the files node-<id>.properties have the same node.id")
    cluster_id = _cluster_id(disk, [one.settings.metadata_log_dir for one in nodes])
    remedies = {
        one.settings.node_id: remedy_of(
            cluster_id, "--config", str(path.absolute()), "--no-initial-controllers"
        )
        if len(nodes) >= REPLICAS
        else "mount or restore it: without it the controllers have no majority"
        for path, one in zip(paths, loaded, strict=True)
    }
    options = {
        one.settings.node_id: (
            *("--config", str(path.absolute())),
            *as_options(own),
            *("--remedy", remedies[one.settings.node_id]),
        )
        for path, own, one in zip(paths, given, loaded, strict=True)
    }
    return LocalCluster(cluster_id, tuple(nodes), remedies, options)


def renew(directory: Path) -> list[Path]:
    """Replace the key and the certificate of each node that is in this directory; raises SettingsError."""
    authority = Authority.read(directory / AUTHORITY_FILE, directory / AUTHORITY_KEY_FILE)
    renewed = []
    for path in certificate_files(directory):
        try:
            content = authority.renew(path.read_bytes())
        except (OSError, ValueError) as error:
            raise SettingsError(f"{path} holds no certificate that can be renewed: {error}") from None
        replace_file(path, content)
        renewed.append(path)
    return renewed


def add_node(directory: Path, node_id: int, hosts: Sequence[str]) -> Path:
    """Write the key and the certificate of one more node, for these hosts; raises SettingsError."""
    names = [checked_host(host) for host in hosts]
    authority = Authority.read(directory / AUTHORITY_FILE, directory / AUTHORITY_KEY_FILE)
    path = directory / f"node-{node_id}.pem"
    try:
        write_file(path, authority.issue(f"node-{node_id}", (*names, *OWN_NAMES)))
    except FileExistsError:
        raise SettingsError(
            f"{path} exists: choose the id of a node that is not in the cluster, or renew its certificate"
        ) from None
    return path


def renew_authority(directory: Path) -> Path:
    """Replace the authority by a new one, and keep the earlier ones trusted; raises SettingsError."""
    path, fresh = directory / AUTHORITY_FILE, new_authority()
    trusted = joined_authorities(fresh, path)
    # A crash between the two leaves a pair that `Authority.read` refuses, and that another call replaces.
    replace_file(directory / AUTHORITY_KEY_FILE, fresh.key_pem)
    replace_file(path, trusted)
    return path


def retire_authorities(directory: Path) -> Path:
    """Trust the newest authority alone; raises SettingsError while it has not signed each node here."""
    path = directory / AUTHORITY_FILE
    authority = Authority.read(path, directory / AUTHORITY_KEY_FILE)
    for one in certificate_files(directory):
        if not authority.has_signed(one):
            raise SettingsError(
                f"{one} is signed by an earlier authority: run `sparklog certificates renew {directory}` "
                f"first"
            )
    replace_file(path, authority.pem)
    return path


def new_authority() -> Authority:
    """An authority with a name of its own."""
    return Authority.new(f"sparklog authority {secrets.token_hex(4)}")


def certificate_files(directory: Path) -> list[Path]:
    """The files with the certificates of nodes; raises SettingsError if there is none."""
    found = sorted(directory.glob("node-*.pem"), key=lambda path: (len(path.name), path.name))
    if not found:
        raise SettingsError(f"{directory} has no file node-<id>.pem: `sparklog init --secure` writes them")
    return found


def _prepare(directory: Path) -> None:
    """Make the directory, or refuse one that is not empty; only its owner can read it."""
    if any(character in str(directory) for character in ',\n\r"\\'):
        raise SettingsError(f"{directory}: the path must not have a comma, quote, backslash or line break")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if next(directory.iterdir(), None) is not None:
        raise DirectoryRefused(str(directory), "the directory is not empty; name an empty or new one")
    directory.chmod(0o700)


@contextmanager
def _private_files() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _placed(count: int, hosts: Sequence[str], base_port: int, reserve: Reserve) -> list[SecureNode]:
    """The nodes with their hosts and ports. On one machine, the ports of clients come first, then those of
    the controllers, then those among brokers; each of several machines has the same three.
    """
    if not 1 <= count <= NODES_MAX:
        raise SettingsError(f"--nodes {count}: there are 1 to {NODES_MAX} nodes")
    check_base_port(base_port, 3 * count)
    is_spread = count > 1 and len(hosts) == count
    if is_spread and not base_port:
        raise SettingsError("--base-port 0 selects ports of this machine: name one for several hosts")
    nodes = []
    for index in range(count):
        client, controller, broker = (
            base_port + kind if is_spread else reserve(base_port and base_port + kind * count + index)
            for kind in range(3)
        )
        own = hosts[index] if is_spread else (hosts[0] if hosts else _LOCAL)
        names = (own,) if is_spread else tuple(hosts)
        nodes.append(SecureNode(index + 1, own, client, controller, broker, names))
    return nodes


def _node_settings(directory: Path, node: SecureNode, nodes: Sequence[SecureNode]) -> dict[str, str]:
    listeners = (("CLIENT", node.client), ("BROKER", node.broker), ("CONTROLLER", node.controller))
    is_loopback = Listener("", node.host, 0, "").is_loopback
    # A listener with a host name would listen on one address of it only.
    bound = node.host if is_loopback else "::" if ":" in node.host else "0.0.0.0"  # noqa: S104
    settings = {
        "node.id": str(node.node_id),
        "process.roles": "broker,controller",
        "log.dirs": str(directory / f"node-{node.node_id}"),
        "listeners": ",".join(f"{name}://{joined(bound, port)}" for name, port in listeners),
        "listener.security.protocol.map": "CLIENT:SASL_SSL,BROKER:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        BOOTSTRAP_KEY: ",".join(joined(one.host, one.controller) for one in nodes),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / f"node-{node.node_id}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / AUTHORITY_FILE),
        # Kafka applies it to SSL only; clients on SASL_SSL have passwords (KIP-684).
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.client.{MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ";".join([f"User:{ADMIN}", *(one.principal for one in nodes)]),
    }
    if bound != node.host:
        settings["advertised.listeners"] = ",".join(
            f"{name}://{joined(node.host, port)}" for name, port in listeners
        )
    replication = (default.partition("=") for default in replication_defaults(len(nodes)))
    return settings | {key: value for key, _, value in replication}


def _properties(settings: Mapping[str, str]) -> bytes:
    """A file of properties; a value has no character that Java would read as another, but backslashes."""
    lines = (f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items())
    return "".join(lines).encode()


def _client_files(directory: Path, servers: str, password: str) -> dict[str, bytes]:
    """The settings of the user admin, for each kind of client."""
    trusted = str(directory / AUTHORITY_FILE)
    common = {"bootstrap.servers": servers, "security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM}
    stores = {"ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}
    login = {"sasl.username": ADMIN, "sasl.password": password}
    jaas = f'{_SCRAM_MODULE} required username="{ADMIN}" password="{password}";'
    python = {name.replace(".", "_"): value for name, value in (common | stores | login).items()}
    rdkafka = common | {"ssl.ca.location": trusted} | login
    return {
        "client.properties": _properties(common | stores | {"sasl.jaas.config": jaas}),
        "client.conf": "".join(f"{name}={value}\n" for name, value in rdkafka.items()).encode(),
        "client.toml": "".join(
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in python.items()
        ).encode(),
    }


def _format(
    disk: Disk, nodes: Sequence[SecureNode], settings: Sequence[BrokerSettings], password: str
) -> None:
    """Format the data directories: all nodes are voters, and the cluster begins with the user admin."""
    cluster_id = encode_uuid(new_uuid(os.urandom))
    controllers = ",".join(
        f"{node.node_id}@{joined(node.host, node.controller)}:{encode_uuid(new_uuid(os.urandom))}"
        for node in nodes
    )
    # The first leader writes its own records, so each node has the same.
    users: list[Message] = [parse_scram(f"{MECHANISM}=[name={ADMIN},password={password}]", os.urandom)]
    for own in settings:
        format_node(
            own,
            disk,
            cluster_id=cluster_id,
            voters=initial_controllers(own, controllers),
            entropy=os.urandom,
            wall_ms=Millis(time.time_ns() // 1_000_000),
            credentials=users,
        )


def _cluster_id(disk: Disk, paths: Sequence[str]) -> str:
    """The cluster id in the first of these directories that is formatted."""
    for path in paths:
        content = disk.read(f"{path}/{META_FILE}")
        if content is None:
            continue
        try:
            return parse_properties(content).get("cluster.id", "")
        except CheckpointCorrupt as error:
            raise DirectoryRefused(path, f"{error}; restore the file from a copy") from error
    raise DirectoryRefused(
        paths[0],
        "no node of the cluster is formatted: run `sparklog format --config FILE` for each, with the same "
        "--cluster-id and --initial-controllers",
    )
