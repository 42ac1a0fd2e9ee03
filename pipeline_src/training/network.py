"""The network interface by which processes on several machines reach each other.

By itself gloo takes the address that the machine's own name stands for, and on Debian that is 127.0.1.1, where no other
machine reaches it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from typing import Any

import psutil

from pipeline_src.common.errors import PipelineError

INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo's own variable
ASKED, PAUSE = 5, 2.0  # times that a name is looked up, and seconds between two: just after a start it may not be known


def check_network() -> None:
    """Fail at once where gloo and NCCL would wait for minutes, or fail without a word of what is wrong.

    Raises:
        PipelineError: ``$MASTER_ADDR`` is a name that nobody knows, or ``$GLOO_SOCKET_IFNAME`` names no interface.
    """
    here = psutil.net_if_addrs()
    for name in filter(None, os.environ.get(INTERFACE, "").split(",")):
        if not any(each.family in (socket.AF_INET, socket.AF_INET6) for each in here.get(name, ())):
            raise PipelineError(
                "no network interface with an address", name, where=f"${INTERFACE} on {os.uname().nodename}",
                remedy=f"use one of {', '.join(here)}, or `unset {INTERFACE}`: then it is the one to $MASTER_ADDR",
            )  # fmt: skip
    host = os.environ["MASTER_ADDR"]
    for attempt in range(ASKED):
        try:
            socket.getaddrinfo(host, None)
            return
        except OSError as error:
            reason = error
        time.sleep(PAUSE if attempt < ASKED - 1 else 0)
    raise PipelineError(
        "unknown name of the first machine", host, where=f"$MASTER_ADDR on {os.uname().nodename}: {reason}",
        remedy="set MASTER_ADDR to an address of the first machine that the others reach",
    )  # fmt: skip


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
