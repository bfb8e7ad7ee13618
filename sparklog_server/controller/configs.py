"""The settings of topics in the controller: validation, and the effective settings in the reply for a new
topic.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode, SettingsError
from sparklog.wire.messages.create_topics import CreatableTopicConfig, CreatableTopicConfigs
from sparklog_server.config.keys import text_of
from sparklog_server.config.layers import Layers
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.config.topic_settings import TopicSettings, topic_keys
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import Refused

if TYPE_CHECKING:
    from sparklog_server.config.describe import ConfigRow, Source

VALUE_LENGTH_MAX = 32767


def overrides_of(configs: Iterable[CreatableTopicConfig]) -> dict[str, str]:
    """The requested overrides of a new topic; raises Refused with INVALID_CONFIG for null values."""
    nulls = [config.name for config in configs if config.value is None]
    if nulls:
        raise Refused(
            ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls)
        )
    return {config.name: config.value for config in configs if config.value is not None}


def checked(defaults: TopicSettings, overrides: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic with these overrides; raises Refused with INVALID_CONFIG."""
    if len(overrides) <= len(topic_keys()):  # of more, some are unknown: a request may have 50 000
        check_lengths(overrides.values())
    try:
        return TopicSettings.of(defaults, overrides)
    except SettingsError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_lengths(values: Iterable[str]) -> None:
    """Refuse a value that is too long for a record; raises Refused with INVALID_CONFIG."""
    if any(len(value) > VALUE_LENGTH_MAX for value in values):
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"The configuration value cannot be added because it exceeds the maximum value size of "
            f"{VALUE_LENGTH_MAX} bytes.",
        )


def layers_in(image: MetadataImage, static: BrokerSettings) -> Layers:
    """All settings of the broker with these static settings: static, cluster-wide and per broker."""
    return Layers.kept(
        static, cluster=image.broker_config(""), broker=image.broker_config(str(static.node_id))
    )


class CreatedConfigs:
    """The effective settings of new topics, as CreateTopics replies list them; those of a topic without
    overrides are computed once.
    """

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._of_defaults: dict[str, CreatableTopicConfigs] | None = None

    def of(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """The settings of a topic with these validated overrides, in alphabetical order."""
        if self._of_defaults is None:
            from sparklog_server.config.describe import default_sources, describe_topic

            sources = default_sources(self._layers)
            self._of_defaults = {
                row.name: _created_config(row, sources[row.name]) for row in describe_topic(self._layers, {})
            }
        if not overrides:
            return list(self._of_defaults.values())
        rows = {**self._of_defaults, **{name: _overridden(name, text) for name, text in overrides.items()}}
        return [rows[name] for name in sorted(rows)]


def _created_config(row: "ConfigRow", source: "Source") -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=row.name,
        value=row.value,
        read_only=row.is_read_only,
        config_source=source,
        is_sensitive=row.is_sensitive,
    )


def _overridden(name: str, text: str) -> CreatableTopicConfigs:
    from sparklog_server.config.describe import Source

    _, key = topic_keys()[name]
    return CreatableTopicConfigs(
        name=name,
        value=text_of(key.parse(text)),
        read_only=False,
        config_source=Source.TOPIC,
        is_sensitive=key.is_sensitive,
    )
