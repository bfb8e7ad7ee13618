"""The cost of client quotas: processor time of one request's charge, from the clock before it to the verdict
after it.

Run as `python -m benchmarks.quotas [--json FILE]`. Without any quota a request costs one look at a
boolean, which is measured as well. The limits are never reached; every client of a thousand has its turn,
and a sample lasts as long as a busy broker would make it.
"""

import time
import timeit
from itertools import cycle

from benchmarks import harness
from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.frame import RECEIVE_BUFFER_BYTES, Framer, spare_buffers
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.access.client_quotas import ClientQuotas
from sparklog_server.broker.session import Call, Session
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.client_quotas import Quotas

REQUESTS = 20_000
CLIENTS = 1_000
US_PER_REQUEST = 50
FAR = 1e12
CASES: dict[str, tuple[Quotas, str | None]] = {
    "no quota": ({}, "<= 0.05"),
    "produce bytes of a user": ({(("user", None),): {"producer_byte_rate": FAR}}, "<= 1"),
    "produce bytes of each client": ({(("client-id", None),): {"producer_byte_rate": FAR}}, "<= 1"),
    "produce bytes and request time": (
        {(("user", None),): {"producer_byte_rate": FAR, "request_percentage": 1e5}},
        None,
    ),
}


def calls() -> list[Call]:
    """One Produce of each client."""
    framer = Framer(frame_bytes_max=1 << 20, shared=bytearray(RECEIVE_BUFFER_BYTES), spares=spare_buffers())
    session = Session(SessionId(1), framer, listener="PLAINTEXT", peer_address="127.0.0.1")
    return [Call(session, 0, 9, 1, f"client-{number}") for number in range(CLIENTS)]


def measure(quotas: Quotas) -> float:
    """µs for each request, the loop around it taken off."""
    charged = ClientQuotas(BrokerSettings.of({}), time.perf_counter_ns)
    charged.published(quotas)
    everybody, message, chunks = calls(), ProduceResponse(), [b"x" * 60]
    instants = [Instant(Micros(number * US_PER_REQUEST), Millis(0)) for number in range(REQUESTS)]

    def bare() -> None:
        for _ in zip(instants, cycle(everybody), strict=False):
            pass

    def each() -> None:
        for now, call in zip(instants, cycle(everybody), strict=False):
            if charged.is_set:
                begun_ns = charged.work_ns() if charged.is_timed else 0
                charged.served(call, 1_000, begun_ns)
                charged.charged(call, message, chunks, now)

    def best(run: object) -> float:
        return min(timeit.repeat(run, number=1, repeat=5))  # type: ignore[arg-type]

    return (best(each) - best(bare)) / REQUESTS * 1e6


def main() -> None:
    options = harness.options(__doc__)
    figures = harness.Figures("quotas")
    for _ in range(options.repeats):
        for what, (quotas, bound) in CASES.items():
            figures.add(what, "µs", "sparklog", measure(quotas), bound=bound)
    figures.report(options)


if __name__ == "__main__":
    main()
