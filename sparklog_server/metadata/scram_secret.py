"""The secret of a cluster by which its brokers make up credentials of SCRAM users that do not exist.

It is a setting in the metadata log, so that it is the same on every broker and stays when users change. It is
drawn with the first credential. Its resource is no broker, so no request reads or changes it, and a Kafka
broker in the same cluster ignores it.
"""

from collections.abc import Callable
from typing import Final

from sparklog.wire.schema import Message

from .image import BROKER_RESOURCE, MetadataImage
from .records import ConfigRecord

_RESOURCE: Final = "sparklog"
_KEY: Final = "sparklog.sasl.scram.secret"
_BYTES: Final = 32


def scram_secret_of(image: MetadataImage) -> str:
    """The secret; empty in a cluster that has never had a SCRAM user."""
    return image.broker_config(_RESOURCE).get(_KEY, "")


def missing_secret(image: MetadataImage, entropy: Callable[[int], bytes]) -> tuple[Message, ...]:
    """The record of a new secret if the cluster has none, for the first credential."""
    if scram_secret_of(image):
        return ()
    value = entropy(_BYTES).hex()
    return (ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=_RESOURCE, name=_KEY, value=value),)
