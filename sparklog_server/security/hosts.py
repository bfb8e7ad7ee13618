"""The host of an access rule: any, one address, or a network in CIDR notation (KIP-1276)."""

from functools import lru_cache


def host_of(peer_address: str) -> str:
    """The IP address of a peer given as ADDRESS:PORT or [ADDRESS]:PORT, in its canonical text."""
    return canonical(peer_address.rpartition(":")[0].strip("[]") or peer_address)


@lru_cache(maxsize=4096)
def canonical(host: str) -> str:
    """The shortest text of an IPv6 address, without its zone, and an IPv4 address for a mapped one; any
    other text unchanged. Kafka writes the long text, 0:0:0:0:0:0:0:1, and rules may have either.
    """
    if ":" not in host:
        return host
    from ipaddress import IPv6Address  # IPv4 needs no parser

    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


@lru_cache(maxsize=65_536)
def lies_in(host: str, network: str) -> bool:
    """Whether the address lies in the network; False for texts that are none."""
    from ipaddress import ip_address

    parsed = _network(network)
    if parsed is None:
        return False
    version, first, mask = parsed
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.version == version and int(address) & mask == first


def _network(text: str) -> tuple[int, int, int] | None:
    """The version, the first address and the mask of a network."""
    from ipaddress import ip_network

    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None
    return network.version, int(network.network_address), int(network.netmask)
