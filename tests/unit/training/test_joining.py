"""A start of a job reads nothing that an earlier one left in the store."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from pipeline_src.common.errors import PipelineError
from pipeline_src.training.joining import join

LONG, SHORT = timedelta(seconds=20), timedelta(seconds=0.2)


def test_each_start_has_a_part_of_its_own_whatever_an_earlier_one_left():
    store = dist.HashStore()

    def start(ranks: list[int], parts: dict[int, dist.PrefixStore]) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=lambda rank=rank: parts.update({rank: join(store, rank, 3, LONG)}))
            for rank in ranks
        ]
        for thread in threads:
            thread.start()
        return threads

    for run in range(2):
        parts: dict[int, dist.PrefixStore] = {}
        threads = start([1, 0], parts)  # beside them there is what process 2 of the first start left
        threads[0].join(10)
        assert list(parts) == [1]  # the first process waits for the third
        for thread in [*threads, *start([2], parts)]:
            thread.join()
        assert not parts[2].check(["address"])
        parts[0].set("address", f"{run}")
        assert parts[1].get("address") == parts[2].get("address") == f"{run}".encode()


def test_a_process_that_never_comes_is_named():
    with pytest.raises(PipelineError, match="process 1 of 2"):
        join(dist.HashStore(), 0, 2, SHORT)
    with pytest.raises(PipelineError, match="process 0 of 2"):
        join(dist.HashStore(), 1, 2, SHORT)
