"""The table from API key to handler and request; a listener of clients serves and advertises exactly its
entries, a listener of controllers those of `dispatch_controller.py`.

A start imports only the handlers of the first requests of a connection. The others are imported, a family at
a time, when a client first sends a request of theirs: imports are most of the time that a start takes.
"""

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
RECORD_APIS: Final = frozenset((0, 1, 2, 10, 19, 22))
GROUP_APIS: Final = frozenset((8, 9, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69))
TRANSACTION_APIS: Final = frozenset((24, 25, 26, 27, 28, 61, 65, 66))
ADMINISTRATION_APIS: Final = frozenset(
    (
        17,
        20,
        21,
        23,
        29,
        30,
        31,
        32,
        33,
        34,
        35,
        36,
        37,
        38,
        39,
        40,
        41,
        43,
        44,
        45,
        46,
        48,
        49,
        50,
        51,
        55,
        57,
        60,
        64,
        74,
        75,
    )
)
TELEMETRY_APIS: Final = frozenset((71, 72))
"""Served where the metrics of clients are shown and can be decoded (`newest_served`)."""
SERVED: Final = (*HANDLERS, *sorted(RECORD_APIS | GROUP_APIS | TRANSACTION_APIS | ADMINISTRATION_APIS))
_INIT_PRODUCER_ID = 22


def import_handler(handlers: Handlers, api_key: int) -> tuple[Handler, type[Message]] | None:
    """Add the family of an API to `handlers`, except for existing entries; None for an API that is not
    served.
    """
    if api_key in RECORD_APIS:
        from sparklog_server.broker.dispatch_records import RECORDS

        family = RECORDS
    elif api_key in GROUP_APIS:
        from sparklog_server.broker.dispatch_groups import GROUPS

        family = GROUPS
    elif api_key in TRANSACTION_APIS:
        from sparklog_server.broker.dispatch_transactions import TRANSACTIONS

        family = TRANSACTIONS
    elif api_key in ADMINISTRATION_APIS:
        from sparklog_server.broker.dispatch_administration import ADMINISTRATION

        family = ADMINISTRATION
    elif api_key in TELEMETRY_APIS:
        from sparklog_server.broker.handlers.telemetry import TELEMETRY

        family = TELEMETRY
    else:
        return None
    for key, entry in family.items():
        handlers.setdefault(key, entry)
    return handlers[api_key]


def newest_served(settings: BrokerSettings) -> dict[int, int]:
    """The newest version of each API that a broker with these settings serves on its clients' listeners."""
    newest = {key: API_BY_KEY[key].until for key in SERVED}
    unreleased = API_BY_KEY[_INIT_PRODUCER_ID].unreleased
    if settings.transactions.two_phase_commit_enable and unreleased is not None:
        newest[_INIT_PRODUCER_ID] = unreleased
    if settings.http.listener is not None:
        from sparklog_server.broker.otlp import is_installed  # a search of the file system

        if is_installed():
            newest |= {key: API_BY_KEY[key].until for key in TELEMETRY_APIS}
    return newest
