"""The page /stacks: where each thread of the node is, as file, line and function. No value of a variable is
shown.
"""

import sys
import threading
from types import FrameType
from typing import Final

FRAMES_MAX: Final = 100
THREADS_MAX: Final = 200


def stacks() -> str:
    """The stacks of all threads, innermost frame first. The one that asks is the loop, in this page."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = list(sys._current_frames().items())[:THREADS_MAX]
    return "\n".join(_told(names.get(ident, "?"), frame) for ident, frame in frames)


def _told(name: str, innermost: FrameType) -> str:
    lines = [f"thread {name!a}"]
    frame: FrameType | None = innermost
    while frame is not None and len(lines) <= FRAMES_MAX:
        lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        frame = frame.f_back
    return "\n".join(lines) + "\n"
