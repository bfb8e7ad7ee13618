"""The table from API key to handler; a listener of clients serves and advertises exactly its entries, one of
controllers those of `dispatch_controller.py`.

A handler is the function of its module that has the name of the API in snake case. A start imports only the
handlers of the first requests of a connection. The others are imported when a client first sends a request of
theirs: imports are most of the time that a start takes.
"""

import importlib
from typing import Final

from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.messages.api_versions import ApiVersionsRequest
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.context import Handler, Handlers
from sparklog_server.broker.handlers.api_versions import api_versions
from sparklog_server.broker.handlers.metadata import metadata
from sparklog_server.config.settings import BrokerSettings

HANDLERS: Handlers = {
    3: (metadata, MetadataRequest),
    18: (api_versions, ApiVersionsRequest),
}
_MODULES: Final = {
    0: "produce",
    1: "fetch",
    2: "offsets",
    8: "group_offsets",
    9: "group_offsets",
    10: "coordinators",
    11: "groups",
    12: "groups",
    13: "groups",
    14: "groups",
    15: "groups",
    16: "groups",
    17: "sasl",
    19: "topics",
    20: "topics",
    21: "delete_records",
    22: "producers",
    23: "epochs",
    24: "transactions",
    25: "transactions",
    26: "transactions",
    27: "markers",
    28: "txn_offsets",
    29: "acls",
    30: "acls",
    31: "acls",
    32: "configs",
    33: "alter_configs",
    34: "log_dirs",
    35: "log_dirs",
    36: "sasl",
    37: "topics",
    38: "delegation_tokens",
    39: "delegation_tokens",
    40: "delegation_tokens",
    41: "delegation_tokens",
    42: "groups",
    43: "elections",
    44: "alter_configs",
    45: "reassignments",
    46: "reassignments",
    47: "group_offsets",
    48: "quotas",
    49: "quotas",
    50: "credentials",
    51: "credentials",
    55: "raft",
    57: "cluster",
    60: "cluster",
    61: "describe_producers",
    64: "cluster",
    65: "transactions",
    66: "transactions",
    68: "groups",
    69: "groups",
    71: "telemetry",
    72: "telemetry",
    74: "configs",
    75: "describe_topics",
    80: "voters",
    81: "voters",
}
"""The module of `handlers` that has the handler of each other API."""
TELEMETRY_APIS: Final = frozenset((71, 72))
"""Served where the metrics of clients are shown and can be decoded (`newest_served`)."""
SERVED: Final = tuple(sorted({*HANDLERS, *_MODULES} - TELEMETRY_APIS))
_INIT_PRODUCER_ID = 22


def import_handler(handlers: Handlers, api_key: int) -> tuple[Handler, type[Message]] | None:
    """Add an API to `handlers` unless it has an entry; None for an API that is not served."""
    if api_key not in _MODULES:
        return None
    api = API_BY_KEY[api_key]
    module = importlib.import_module(f"sparklog_server.broker.handlers.{_MODULES[api_key]}")
    handler: Handler = getattr(module, api.module)
    return handlers.setdefault(api_key, (handler, api.request()))


def newest_served(settings: BrokerSettings) -> dict[int, int]:
    """The newest version of each API that a broker with these settings serves on its clients' listeners."""
    newest = {key: API_BY_KEY[key].until for key in SERVED}
    unreleased = API_BY_KEY[_INIT_PRODUCER_ID].unreleased
    if settings.transactions.two_phase_commit_enable and unreleased is not None:
        newest[_INIT_PRODUCER_ID] = unreleased
    if settings.http.listener is not None:
        from sparklog_server.broker.metrics.otlp import is_installed  # a search of the file system

        if is_installed():
            newest |= {key: API_BY_KEY[key].until for key in TELEMETRY_APIS}
    return newest
