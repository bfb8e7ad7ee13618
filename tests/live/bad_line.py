"""A bad line between two interfaces: it loses Ethernet frames, and delays each one by itself, so that some
overtake others. A kernel without netem does neither.

    python -m tests.live.bad_line NODE BRIDGE --delay-ms 50 --jitter-ms 20 --loss 0.01

Prints a line once it forwards, and ends when it is killed.
"""

import argparse
import heapq
import random
import selectors
import socket
import time

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_ETH_P_ALL = 3
_FRAME_BYTES_MAX = 1 << 17  # a segment that the interface would cut, with the header that tells how
_FRAMES_MAX = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("interfaces", nargs=2)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--jitter-ms", type=float, default=0.0)
    parser.add_argument("--loss", type=float, default=0.0, help="the share of frames that are lost")
    options = parser.parse_args()
    one, other = (_opened(name) for name in options.interfaces)
    print("forwarding", flush=True)
    forward(one, other, delay_s=options.delay_ms / 1000, jitter_s=options.jitter_ms / 1000, loss=options.loss)


def _opened(name: str) -> socket.socket:
    """The frames that arrive at an interface, with their offload headers, and the way out of it."""
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    found.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    found.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    found.bind((name, 0))
    found.setblocking(False)
    return found


def forward(
    one: socket.socket, other: socket.socket, *, delay_s: float, jitter_s: float, loss: float
) -> None:
    """Forward in both directions for ever; frames beyond a bound are lost."""
    targets = {one: other, other: one}
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    number = 0
    with selectors.DefaultSelector() as selector:
        for source in targets:
            selector.register(source, selectors.EVENT_READ)
        while True:
            due_s = waiting[0][0] - time.monotonic() if waiting else None
            for key, _ in selector.select(None if due_s is None else max(due_s, 0)):
                assert isinstance(key.fileobj, socket.socket)
                frame = key.fileobj.recv(_FRAME_BYTES_MAX)
                if len(waiting) < _FRAMES_MAX and random.random() >= loss:
                    at_s = time.monotonic() + delay_s + random.uniform(0, jitter_s)
                    heapq.heappush(waiting, (at_s, number, targets[key.fileobj], frame))
                    number += 1
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(waiting)
                try:
                    target.send(frame)
                except OSError:  # no room or no such frame: it is lost, as on any line
                    continue


if __name__ == "__main__":
    main()
