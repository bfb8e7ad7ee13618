"""Validation of the settings of a resource by its type, with Kafka's codes and messages
(ControllerConfigurationValidator).
"""

from collections.abc import Callable, Mapping

from sparklog.errors import ErrorCode, SettingsError
from sparklog.model import NodeId
from sparklog_server.config.client_metrics import (
    CLIENT_METRICS_KEYS,
    INTERVAL_MAX_MS,
    INTERVAL_MIN_MS,
    check_client_metrics,
)
from sparklog_server.config.group_keys import GROUP_KEYS, check_group
from sparklog_server.config.keys import Update
from sparklog_server.config.layers import BROKER_STATE, Layers, dynamic_key
from sparklog_server.config.settings import nearest_broker_key
from sparklog_server.config.topic_settings import nearest, topic_keys
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from sparklog_server.outcome import Refused

from .configs import checked
from .topic_names import check_name

CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

_PATTERNS_PER_REQUEST_MAX = 1_000
"""A pattern takes up to 0.1 ms to compile."""
_HINTS_MAX = 16
"""The suggestion of the nearest key takes up to 1 ms."""

_THREAD_KEYS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
# Allowed only with a listener's prefix: they would change the identity of every listener at once.
_LISTENER_KEYS = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)

Texts = Mapping[str, str]
Changes = Mapping[str, str | None]


class ResourceChecks:
    """The checks of one request; `layers` are those of the deciding node."""

    def __init__(self, image: MetadataImage, layers: Layers) -> None:
        self._image = image
        self._layers = layers
        self._hints = _HINTS_MAX
        self._patterns = _PATTERNS_PER_REQUEST_MAX

    def check(self, resource: tuple[int, str], after: Texts, changes: Changes) -> None:
        """Raise Refused unless the resource exists and its settings are valid; `changes` are the new ones."""
        resource_type, name = resource
        if resource_type == TOPIC_RESOURCE:
            self._check_topic(name, after)
        elif resource_type == BROKER_RESOURCE:
            self._check_broker(name, after, changes)
        elif resource_type == GROUP_RESOURCE:
            self._check_group(name, after)
        elif resource_type == CLIENT_METRICS_RESOURCE:
            self._check_client_metrics(name, after)
        else:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")

    def _check_topic(self, name: str, after: Texts) -> None:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(name)
        self._check_known(after, topic_keys(), ErrorCode.INVALID_CONFIG, "Unknown topic config name: ")
        checked(self._layers.effective.topics, after)
        if name not in self._image.topics_by_name:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def _check_broker(self, name: str, after: Texts, changes: Changes) -> None:
        if name and (not name.isascii() or not name.removeprefix("-").isdigit() or len(name) > 10):
            raise Refused(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        if name.startswith("-"):
            raise Refused(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
        given = {key: value for key, value in changes.items() if value is not None}
        self._check_broker_keys(name, given)
        layers = self._layers
        node_name = str(layers.static.node_id)
        if name in ("", node_name):
            try:
                new = Layers.of(
                    layers.static,
                    cluster=self._image.broker_config("") if name else after,
                    broker=after if name else self._image.broker_config(node_name),
                )
            except SettingsError as error:
                raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
            _check_threads(layers, new, given)
        if (
            name
            and NodeId(int(name)) not in self._image.brokers
            and not self._is_state_of_gone(name, changes)
        ):
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")

    def _is_state_of_gone(self, name: str, changes: Changes) -> bool:
        """Whether only a state is asked, of a broker that was unregistered while partitions list it."""
        node = NodeId(int(name))
        return [*changes] == [BROKER_STATE] and any(
            node in partition.replicas
            for topic in self._image.topics_by_id.values()
            for partition in topic.partitions
        )

    def _check_broker_keys(self, name: str, given: Texts) -> None:
        """Refuse keys that are unknown, read-only or not allowed at this level, and values that are invalid
        for a key.
        """
        read_only, bare, per_broker = [], [], []
        for key_name in given:
            key = dynamic_key(key_name)
            if key is None:
                hint = self._hint(key_name, nearest_broker_key)
                raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {key_name}{hint}")
            if key.update is Update.READ_ONLY:
                read_only.append(key_name)
            elif key_name in _LISTENER_KEYS:
                bare.append(key_name)
            elif key.update is Update.PER_BROKER and not name:
                per_broker.append(key_name)
        for wrong, reason in (
            (read_only, "Cannot update these configs dynamically"),
            (
                bare,
                "These security configs can be dynamically updated only per-listener using the listener "
                "prefix",
            ),
        ):
            if wrong:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(wrong)}]")
        for key_name, text in given.items():
            key = dynamic_key(key_name)
            assert key is not None
            try:
                key.parse(text)
            except SettingsError as error:
                # The error message would contain the secret value.
                message = f"Invalid value for configuration {key_name}" if key.is_sensitive else str(error)
                raise Refused(ErrorCode.INVALID_REQUEST, message) from None
        if per_broker:
            reason = "Cannot update these configs at default cluster level, broker id must be specified"
            raise Refused(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(per_broker)}]")

    def _check_group(self, name: str, after: Texts) -> None:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        self._check_known(after, GROUP_KEYS, ErrorCode.INVALID_CONFIG, "Unknown group config name: ")
        try:
            check_group(after, self._layers)
        except SettingsError as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None

    def _check_client_metrics(self, name: str, after: Texts) -> None:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        self._check_known(
            after, CLIENT_METRICS_KEYS, ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: "
        )
        self._patterns -= after.get("match", "").count(",") + 1
        if self._patterns < 0:
            message = f"Unable to compile more than {_PATTERNS_PER_REQUEST_MAX} patterns for one request."
            raise Refused(ErrorCode.POLICY_VIOLATION, message)
        try:
            interval_ms = check_client_metrics(after)
        except SettingsError as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
            message = f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MIN_MS} and {INTERVAL_MAX_MS} (1 hour)"  # noqa: E501
            raise Refused(ErrorCode.INVALID_REQUEST, message)

    def _check_known(self, texts: Texts, known: Mapping[str, object], code: ErrorCode, words: str) -> None:
        for name in texts:
            if name not in known:
                raise Refused(code, f"{words}{name}{self._hint(name, lambda wrong: nearest(wrong, known))}")

    def _hint(self, name: str, look: Callable[[str], str]) -> str:
        if not self._hints:
            return ""
        self._hints -= 1
        return look(name)


def _check_threads(before: Layers, after: Layers, given: Texts) -> None:
    """One step may at most halve or double a number of threads, as in Kafka, so that a mistaken zero does not
    stop a broker.
    """
    for name in _THREAD_KEYS:
        if name not in given:
            continue
        old, new = int(before.text(name) or 1), int(after.text(name) or 1)
        if new < 1 or new < old // 2 or new > old * 2:
            message = f"Invalid value {new} for configuration {name}: it is {old} now, and may become {max(old // 2, 1)} to {old * 2} in one step"  # noqa: E501
            raise Refused(ErrorCode.INVALID_REQUEST, message)
