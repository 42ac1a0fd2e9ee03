"""Batches made on another thread come in order, and the thread ends."""

import threading
import time

import pytest

from pipeline_src.training.prefetch import prefetch


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "batches ahead"]


def test_items_come_in_order_and_the_thread_ends():
    assert list(prefetch(range(50), depth=3)) == list(range(50))
    assert list(prefetch([])) == []
    assert not threads()


def test_none_is_an_item():
    assert list(prefetch([None, 1, None])) == [None, 1, None]


def test_work_is_done_while_nobody_asks():
    made = []
    items = prefetch((made.append(number) or number for number in range(10)), depth=4)
    assert next(items) == 0
    deadline = time.monotonic() + 10
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(made) in (5, 6)  # four wait, one is held by the thread, one is out
    items.close()
    assert not threads()


def test_an_error_comes_after_what_was_made_before_it():
    def broken():
        yield 1
        raise ValueError("the disk is gone")

    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="the disk is gone"):
        next(items)
    assert not threads()
