"""The interface gloo uses, chosen on every machine by the way to the first one."""

import socket
from collections import namedtuple
from datetime import timedelta

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.training import distributed, network

Address = namedtuple("Address", "address family", defaults=[socket.AF_INET])
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


def joining(monkeypatch, rank: int = 1, port: int = 1) -> str:
    """Why a process cannot join the others."""
    values = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_PORT": port}
    for name, value in {name: str(value) for name, value in values.items()}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PipelineError) as error, distributed.init_distributed():
        pass
    return str(error.value)


def test_a_name_that_nobody_knows_is_told_at_once(monkeypatch):
    """gloo's store would ask for it for ten minutes."""
    asked, pauses = [], []

    def unknown(host: str, *_: object) -> None:
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(network.socket, "getaddrinfo", unknown)
    monkeypatch.setattr(network.time, "sleep", pauses.append)
    told = joining(monkeypatch)
    assert "unknown name of the first machine: first" in told and "$MASTER_ADDR on " in told
    assert "Name or service not known" in told and "address of the first machine" in told
    assert asked == ["first"] * network.ASKED and 4 <= sum(pauses) <= 20


def test_a_name_that_is_known_a_little_later_is_waited_for(monkeypatch):
    answers = iter([socket.gaierror(-3, "Temporary failure"), []])

    def known_later(*_: object) -> list[object]:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(network.socket, "getaddrinfo", known_later)
    monkeypatch.setattr(network.time, "sleep", lambda seconds: None)
    network.check_network()
    assert next(answers, None) is None


@pytest.mark.parametrize("wanted", ["eth7", "ib0,eth7", "raw0"])
def test_an_interface_that_is_not_there_is_told_with_those_that_are(monkeypatch, wanted):
    raw = {"raw0": [Address("00:11:22:33:44:55", socket.AF_PACKET)]}  # no address to connect to
    monkeypatch.setattr(network.psutil, "net_if_addrs", lambda: INTERFACES | raw)
    monkeypatch.setenv(network.INTERFACE, wanted)
    told = joining(monkeypatch)
    assert f"no network interface with an address: {wanted.rpartition(',')[2]}" in told
    assert "$GLOO_SOCKET_IFNAME on " in told and "lo, ib0, eth0" in told


@pytest.mark.parametrize(("rank", "told"), [(0, "cannot listen"), (1, "cannot be reached")])
def test_a_port_that_is_taken_or_closed_is_told(monkeypatch, rank, told):
    monkeypatch.undo()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setattr(distributed, "STARTING", timedelta(seconds=1))
    with socket.socket() as taken:
        taken.bind(("", 0))
        if rank == 0:
            taken.listen()
        port = taken.getsockname()[1]
        said = joining(monkeypatch, rank, port)
    assert f"{told}: 127.0.0.1 port {port}" in said and "set MASTER_PORT to a free port" in said
