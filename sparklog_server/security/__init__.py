"""Who a client is and what it may do: pure functions and values, without I/O, clock or threads."""
