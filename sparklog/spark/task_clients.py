"""The clients of the tasks of a query, and the delegation token that they have.

Without `kafka.sasl.token.mechanism`, tasks have the settings of the query. With it, the driver authenticates
by the credentials of the options, and tasks only by a delegation token that the driver fetches (KIP-48):

    reader    the token is in each InputPartition; a pickled reader has no credentials
    writer    Spark pickles it once for a query, so it has the token that was fetched when the query began

A process fetches a new token after ten minutes, or after half of the life of the last one, so a stream gives
its tasks new ones, and a token that an operator has ended is soon replaced.
"""

import os
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import InputPartition

from sparklog.client.settings import ClientSettings
from sparklog.spark.client_options import TokenMechanism
from sparklog.spark.options import Options

if TYPE_CHECKING:
    from sparklog.client.admin.credentials import DelegationToken

TOKENS_MAX: Final = 8
"""The maximum number of tokens that a process keeps."""
KEPT_S_MAX: Final = 600

_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_DEFAULTS: Final = {
    name: default
    for name, default in zip(
        ClientSettings.__struct_fields__, ClientSettings.__struct_defaults__, strict=True
    )
    if name.startswith("sasl_")
}
"""The settings of a client without credentials of SASL."""


class TokenPartition(InputPartition):
    """The ranges of one task, and the settings of its client."""

    def __init__(self, value: object, client: ClientSettings) -> None:
        super().__init__(value)
        self.client = client


def input_partition(value: object, options: Options) -> InputPartition:
    """What the driver plans for one task."""
    if options.token_mechanism is None:
        return InputPartition(value)
    return TokenPartition(value, _TOKENS.settings(options.client, options.token_mechanism))


def options_of_task(options: Options, partition: InputPartition) -> Options:
    """The options of a task, from those that its reader was pickled with."""
    return replace(options, client=partition.client) if isinstance(partition, TokenPartition) else options


def options_of_pickle(options: Options) -> Options:
    """The options that a reader is pickled with."""
    if options.token_mechanism is None:
        return options
    return replace(options, client=msgspec.structs.replace(options.client, **_DEFAULTS))


def options_of_writer(options: Options) -> Options:
    """The options of a writer, which commits by the token, too."""
    if options.token_mechanism is None:
        return options
    return replace(options, client=_TOKENS.settings(options.client, options.token_mechanism))


class _Kept(msgspec.Struct, frozen=True):
    """The settings of tasks with a token, for queries with `made_by`, in this process."""

    process: int
    mechanism: TokenMechanism
    made_by: ClientSettings
    settings: ClientSettings
    until_s: float


class TaskTokens:
    """The tokens of a process, which serve all of its queries for a while. `clock` gives seconds."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        fetch: "Callable[[ClientSettings], DelegationToken] | None" = None,
    ) -> None:
        self._clock = clock
        self._fetch = fetch
        self._kept: list[_Kept] = []  # the newest is last

    def settings(self, client: ClientSettings, mechanism: TokenMechanism) -> ClientSettings:
        """The settings of tasks for those of a query; fetches a token if there is none for them. Raises
        BrokerError.
        """
        now_s, asked = self._clock(), (os.getpid(), mechanism, client)
        for kept in self._kept:
            if (kept.process, kept.mechanism, kept.made_by) == asked and now_s < kept.until_s:
                return kept.settings
        made = self._fetched(client)
        settings = _by_token(client, mechanism, made)
        until_s = now_s + min(made.lifetime_ms / 2000, KEPT_S_MAX)
        self._kept = [one for one in self._kept if now_s < one.until_s][1 - TOKENS_MAX :]
        self._kept.append(_Kept(*asked, settings, until_s))
        return settings

    def _fetched(self, client: ClientSettings) -> "DelegationToken":
        if self._fetch is not None:
            return self._fetch(client)
        from sparklog.client.admin.credentials import create_delegation_token  # few queries need it

        return create_delegation_token(client)


def _by_token(client: ClientSettings, mechanism: TokenMechanism, token: "DelegationToken") -> ClientSettings:
    password = b64encode(token.hmac).decode()
    given = {
        **_DEFAULTS,
        "sasl_mechanism": mechanism.value.upper(),
        "sasl_jaas_config": f'{_JAAS} username="{token.token_id}" password="{password}" tokenauth="true";',
    }
    return msgspec.structs.replace(client, **given)


_TOKENS: Final = TaskTokens()
