"""TLS by Kafka's `ssl.*` keys, for the client, the broker's listeners and the links between nodes.

    keys ─► stores (files, inline PEM, PKCS12 ─► PEM) ─► contexts (ssl.SSLContext) ─► a socket

Importing this package imports neither `ssl` nor `cryptography`: read `keys` first. `contexts` imports `ssl`;
`stores` imports `cryptography` only for a PKCS12 file.
"""
