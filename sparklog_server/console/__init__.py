"""The console: pages in a browser for any cluster that speaks Kafka's protocol, served by a process of its
own.

It is a client like any other and knows nothing of the broker's inside: `clusters` runs calls of Admin,
Consumer and Producer in threads, `access` knows who asks, `ask` wraps each page with login, CSRF and errors,
`rendering` makes names and values inert, `sampling` takes samples of rates, `pages` has a module for each
page. `sparklog top` and `health` use `rates`, `brokers`, `group_lag` and `shown` too, which need no package
of the console. Read `app` first.
"""
