"""The network interface by which processes on several machines reach each other.

By itself gloo takes the address that the machine's own name stands for, and on Debian that is 127.0.1.1, where no other
machine reaches it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

import psutil

INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo's own variable


def choose_interface(store: Any, rank: int, world_size: int) -> None:
    """Set ``$GLOO_SOCKET_IFNAME``, unless it is, to the interface that routes to ``$MASTER_ADDR``.

    On the machine that this address is of, its name may stand for the machine itself alone; there it is the interface
    that routes to one of the other machines.

    Args:
        store: a ``torch.distributed.Store`` that all processes share.
        rank, world_size: of this process; all of them must call this.
    """
    own = source_address(os.environ["MASTER_ADDR"])
    store.set(f"address/{rank}", own)
    others = [store.get(f"address/{other}").decode() for other in range(world_size)]
    far = [address for address in others if address and not _is_loopback(address)]
    if own and _is_loopback(own) and far:
        own = source_address(far[0])
    interface = interface_of(own)
    if interface:
        os.environ.setdefault(INTERFACE, interface)


def source_address(host: str) -> str:
    """This machine's address on the way to ``host``; empty where there is no way. Nothing is sent."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect(address)
            return str(way.getsockname()[0])
    except OSError:
        return ""


def interface_of(address: str) -> str | None:
    """The interface that bears an address of this machine; any of 127.0.0.0/8 is that of 127.0.0.1."""
    if not address:
        return None
    wanted = "127.0.0.1" if address.startswith("127.") else address
    for name, borne in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == wanted for each in borne):
            return name
    return None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
