"""The broker: one deterministic object that takes bytes and the time and gives effects.

This room has the turn: `broker` (read it first), `sessions`, `requests` and `dispatch` lead from bytes to a
handler, `context` is what handlers may use, each by the port of its family in `ports`; `sliced_requests`,
`reply_sender` and `memory` bound what a turn costs. The rooms beside it: `handlers`, `cluster`,
`coordinators`, `access`, `metrics`, `opening`. No module below here knows sockets, threads or the clock.
"""
