"""SCRAM credentials while controllers end and come back: what was acknowledged is so on every node."""

from random import Random

import pytest

from sparklog.client.sasl.login import PasswordLogin
from sparklog.client.sasl.scram_messages import salted_password
from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog_server.simulation.cluster import SimulatedConnection, SimulatedNode
from tests.broker.access.test_sasl_of_nodes import SECURE, ask, log_in
from tests.broker.clusters import Cluster

USERS = ("ann", "ben", "cyd", "dan")
MECHANISM, NUMBER, HASH = "SCRAM-SHA-256", 1, "sha256"
STEPS = 24
PATIENCE_MS = 60_000


class Changes:
    """Changes of credentials by clients of any node: for each user, the passwords that may count now, None
    for no credential.

    A change without a response may count, be it later: it stays possible until the next one is acknowledged,
    which the controller decides after it.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.possible: dict[str, set[str | None]] = {user: {None} for user in USERS}
        self.acknowledged = 0
        self._pending: dict[str, tuple[SimulatedConnection, int, str | None]] = {}
        self._clients: dict[int, SimulatedConnection] = {}
        self._number = 0

    def begin(self) -> None:
        """Send a change for a user who has none in flight, to any node."""
        idle = [user for user in USERS if user not in self._pending]
        running = [number for number, node in self.cluster.nodes.items() if node.broker is not None]
        if not idle or not running:
            return
        user, number = self.random.choice(idle), self.random.choice(running)
        client = self._client(number)
        if client is None:
            return
        self._number += 1
        password = None if self.random.random() < 0.4 else f"{user}-{self._number}"
        request = AlterUserScramCredentialsRequest()
        if password is None:
            request.deletions = [ScramCredentialDeletion(user, NUMBER)]
        else:
            salted = salted_password(HASH, password, b"salt", 4096)
            request.upsertions = [ScramCredentialUpsertion(user, NUMBER, 4096, b"salt", salted)]
        self._pending[user] = (client, len(client.replies) + len(client.owed), password)
        client.send(request, 0, AlterUserScramCredentialsResponse)

    def settle(self) -> None:
        """Take the responses that have come; a closed connection leaves its change uncertain."""
        for user, (client, position, password) in list(self._pending.items()):
            if len(client.replies) > position:
                told = client.replies[position]
                assert isinstance(told, AlterUserScramCredentialsResponse)
                code = told.results[0].error_code
                del self._pending[user]
                if code == 0:
                    self.acknowledged += 1
                    self.possible[user] = {password}
                elif code == ErrorCode.RESOURCE_NOT_FOUND:  # there was none to delete
                    assert None in self.possible[user], (user, self.possible[user])
                    self.possible[user] = {None}
                else:
                    self.possible[user].add(password)
            elif client.is_closed:
                del self._pending[user]
                self.possible[user].add(password)

    @property
    def is_settled(self) -> bool:
        """Whether every change has its outcome."""
        self.settle()
        return not self._pending

    def _client(self, number: int) -> SimulatedConnection | None:
        client = self._clients.get(number)
        if client is None or client.is_closed:
            node = self.cluster.nodes[NodeId(number)]
            if node.broker is None or not node.broker.is_ready:
                return None
            client = self._clients[number] = log_in(self.cluster, node)
        return client


def passes(cluster: Cluster, node: SimulatedNode, user: str, password: str) -> bool:
    """Whether the node takes this password."""
    connection = node.connect()
    machine = PasswordLogin(MECHANISM, user, password, lambda size: b"n" * size).machine()
    ask(cluster, connection, SaslHandshakeRequest(MECHANISM), 1, SaslHandshakeResponse)
    response = machine.first()
    while response:
        told = ask(cluster, connection, SaslAuthenticateRequest(response), 2, SaslAuthenticateResponse)
        assert isinstance(told, SaslAuthenticateResponse)
        if told.error_code:
            return False
        response = machine.next(told.auth_bytes)
    return True


@pytest.mark.parametrize("seed", range(2))
def test_no_acknowledged_credential_is_lost_and_no_deleted_one_comes_back(seed: int) -> None:
    live(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 60))
def test_no_acknowledged_credential_is_lost_in_many_failovers(seed: int) -> None:
    live(seed)


def live(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(seed, **SECURE).start()
    cluster.run_until(lambda: cluster.is_ready)
    changes = Changes(cluster, random)
    kills = 0
    for _ in range(STEPS):
        changes.begin()
        cluster.run(random.randrange(40))
        changes.settle()
        down = [node for node in cluster.nodes.values() if node.broker is None]
        if down:
            if random.random() < 0.5:
                down[0].start()
        elif random.random() < 0.3 and cluster.leader is not None:
            cluster.leader.kill(is_power_cut=random.random() < 0.5)
            kills += 1
            if random.random() < 0.5:
                cluster.run_until(lambda: cluster.leader is not None)
    for node in cluster.nodes.values():
        if node.broker is None:
            node.start()
    cluster.run_until(lambda: cluster.is_ready and cluster.leader is not None, PATIENCE_MS)
    cluster.run_until(lambda: changes.is_settled, PATIENCE_MS)
    cluster.run(2_000)
    assert kills
    assert changes.acknowledged
    for user, possible in changes.possible.items():
        found = [
            {password for password in sent(changes, user) if passes(cluster, node, user, password)}
            for node in cluster.nodes.values()
        ]
        assert found[0] == found[1] == found[2], user
        assert found[0] in [set() if one is None else {one} for one in possible], (user, found, possible)


def sent(changes: Changes, user: str) -> list[str]:
    return [f"{user}-{number}" for number in range(1, changes._number + 1)]
