"""The interface gloo uses, chosen on every machine by the way to the first one."""

from collections import namedtuple

import pytest

from pipeline_src.training import network

Address = namedtuple("Address", "address")
INTERFACES = {
    "lo": [Address("127.0.0.1"), Address("::1")],
    "ib0": [Address("10.0.0.1"), Address("fe80::1%ib0")],
    "eth0": [Address("192.168.0.1")],
}


class Store(dict):
    """What the processes share."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """The first of two machines; its own name stands for 127.0.1.1, as Debian has it."""
    ways = {"first": "127.0.1.1", "10.0.0.2": "10.0.0.1"}
    monkeypatch.setattr(network, "source_address", lambda host: ways.get(host, ""))
    monkeypatch.setattr(network.psutil, "net_if_addrs", lambda: INTERFACES)
    monkeypatch.setenv("MASTER_ADDR", "first")
    monkeypatch.setenv(network.INTERFACE, "")
    monkeypatch.delenv(network.INTERFACE)


def chosen(**others: str) -> str | None:
    store = Store({f"address/{rank[1:]}": address.encode() for rank, address in others.items()})
    network.choose_interface(store, 0, 1 + len(others))
    return network.os.environ.get(network.INTERFACE)


def test_a_machine_whose_name_stands_for_itself_takes_the_way_to_another():
    assert chosen(r1="127.0.1.1", r2="10.0.0.2") == "ib0"


def test_processes_of_one_machine_stay_on_it():
    assert chosen(r1="127.0.1.1") == "lo"


def test_another_machine_takes_the_way_to_the_first(monkeypatch):
    monkeypatch.setattr(network, "source_address", lambda host: "192.168.0.1")
    assert chosen(r1="10.0.0.2") == "eth0"


def test_what_is_set_or_cannot_be_known_stays(monkeypatch):
    monkeypatch.setattr(network, "source_address", lambda host: "")
    assert chosen(r1="10.0.0.2") is None
    monkeypatch.setenv(network.INTERFACE, "mine")
    assert chosen(r1="10.0.0.2") == "mine"


def test_the_way_to_an_address_of_this_machine(monkeypatch):
    monkeypatch.undo()
    assert network.source_address("127.0.0.1") == "127.0.0.1"
    assert network.interface_of("127.0.1.1") == "lo"
    assert network.source_address("no such host") == ""
