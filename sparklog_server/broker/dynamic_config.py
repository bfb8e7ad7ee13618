"""The settings of this broker while it runs: the static ones, and the changes in the metadata.

Objects that depend on a setting read it here each time, or the broker updates them when `follow` reports a
change.
"""

from collections.abc import Callable

from sparklog_server.broker.log_settings import log_settings
from sparklog_server.config.layers import Layers, dynamic_key
from sparklog_server.config.settings import BrokerSettings, TopicSettings
from sparklog_server.controller.configs import layers_in
from sparklog_server.log.log_config import LogConfig
from sparklog_server.loggers import Level, Loggers
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataDelta, MetadataImage


class DynamicBrokerConfig:
    """The settings of the broker and its topics as of the newest published metadata."""

    def __init__(self, static: BrokerSettings, trace: Callable[..., None]) -> None:
        self._image = MetadataImage()
        self._trace = trace
        self._resources = (BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(static.node_id))
        self.layers = Layers.of(static)
        self.loggers = Loggers()
        self.followers: list[Callable[[], None]] = []
        """Called after each change of the settings."""
        self.settings: BrokerSettings = self.layers.effective
        """The broker's settings."""
        self._log_defaults = log_settings(static.topics, static)

    @property
    def is_only_broker(self) -> bool:
        """Whether this broker is the only registered one, counting fenced ones."""
        return len(self._image.brokers) <= 1

    def topic(self, name: str) -> TopicSettings:
        """The settings of a topic."""
        return TopicSettings.kept(self.settings.topics, self._image.topic_config(name))

    def log(self, topic: str) -> LogConfig:
        """The log configuration of a topic; topics without overrides share one object."""
        overrides = self._image.topic_config(topic)
        return (
            log_settings(TopicSettings.kept(self.settings.topics, overrides), self.settings)
            if overrides
            else self._log_defaults
        )

    def follow(self, delta: MetadataDelta) -> bool:
        """Apply published metadata; returns whether settings of this broker changed."""
        self._image = delta.after
        if not any(resource in delta.configs_changed for resource in self._resources):
            return False
        before = self.layers
        self._set(layers_in(delta.after, before.static))
        self._tell(before)
        return True

    def reload(self, static: BrokerSettings) -> None:
        """Replace the static settings."""
        self._set(layers_in(self._image, static))

    def _set(self, layers: Layers) -> None:
        self.layers = layers
        self.settings = layers.effective
        self._log_defaults = log_settings(self.settings.topics, self.settings)
        for changed in self.followers:
            changed()

    def set_level(self, logger: str, level: Level | None, principal: str) -> None:
        """Change the level of a logger until the broker stops; None takes its own level away."""
        self.loggers.set(logger, level)
        in_force = self.loggers.level_of(logger).name
        self._trace("logger-level-changed", of=logger, to=in_force, principal=principal)

    def _tell(self, before: Layers) -> None:
        """One log line for a change, without the values, because some are secrets."""
        after = self.layers
        pairs = ((before.cluster, after.cluster), (before.broker, after.broker))
        names = sorted(
            {name for old, new in pairs for name in {**old, **new} if old.get(name) != new.get(name)}
        )
        idle = [name for name in names if (key := dynamic_key(name)) is not None and not key.has_effect]
        more = {"without_effect": ",".join(idle)} if idle else {}
        if after.conflict:
            more["ignored"] = after.conflict
        self._trace("settings-changed", keys=",".join(names), **more)
