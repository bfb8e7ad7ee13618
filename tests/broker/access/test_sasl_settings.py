"""What a change of settings keeps of the SASL listeners of a running node."""

import json
from collections.abc import Callable

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from sparklog.client.sasl.machines import OAuthMachine
from sparklog.model import Instant, Micros, Millis, Offset
from sparklog_server.broker.access.authentication import Authentication
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataImage
from sparklog_server.metadata.records import ConfigRecord
from sparklog_server.security.oauth import Keys, KeysRead
from sparklog_server.security.sasl import Step, Working

NOW = Instant(Micros(0), Millis(1_800_000_000_000))
KEY = rsa.generate_private_key(65537, 2048)
JWKS = json.dumps(
    {"keys": [json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "one"}]}
).encode()
CLAIMS = {"sub": "alice", "aud": "kafka", "iat": 1_800_000_000, "exp": 1_800_000_300}
TOKEN = jwt.encode(CLAIMS, KEY, "RS256", headers={"kid": "one"})


class Node:
    """The authentication of a node, its settings, and the reads of keys."""

    def __init__(self) -> None:
        settings = BrokerSettings.of(
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9091",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
            }
        )
        self.live = DynamicBrokerConfig(settings, lambda *_, **__: None)
        self.reads = 0
        self.authentication = Authentication(
            self.live,
            MetadataImage,
            cluster_id="c",
            entropy=bytes,
            read=lambda _url: JWKS,
            run_in_background=self._run,
            trace=lambda *_, **__: None,
        )

    def _run(self, job: Callable[[], Keys | str], then: KeysRead) -> None:
        self.reads += 1
        then(job(), NOW)

    def alter(self, name: str, value: str) -> None:
        record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=name, value=value)
        self.live.follow(MetadataImage().apply([(Offset(0), record)])[1])

    def first_step(self) -> Step:
        session = self.authentication.begin("SASL_PLAINTEXT")
        assert session is not None
        session.choose("OAUTHBEARER", NOW)
        return session.respond(OAuthMachine(TOKEN).first(), NOW)


def test_the_keys_of_a_provider_stay_when_another_setting_changes() -> None:
    node = Node()
    node.first_step()
    for name, value in (("log.retention.ms", "1000"), ("max.connections", "77")):
        node.alter(name, value)
        assert isinstance(node.first_step(), Working)
    assert node.reads == 1
