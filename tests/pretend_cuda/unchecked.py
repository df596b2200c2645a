"""A pytest plugin for the pretend runtime with kernels that compute nothing: answers aren't checked, cuDNN isn't used.

Numbers that ranks make with kernels and read on the host, such as sizes of messages, go through their store instead.
"""

import itertools
import math
import pickle

import pytest
import torch
import torch.distributed as dist

from benchmarks import distributed, training
from gpubench.measure import ranks, verify
from gpubench.measure.prepare import Preparation

torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)

READ_BACK = dict.fromkeys(("test_cholesky", "test_qr", "test_svd"), "an error code")
READ_BACK |= dict.fromkeys(("test_eigh", "test_lstsq"), "the size of a workspace")
READ_BACK |= {"test_solve": "pivots and an error code", "test_unique": "how many values differ"}
READ_BACK |= {"test_csr": "how many elements a row has", "test_random_numbers": "their mean and variance"}
READ_BACK |= {"test_option_price": "the price"}
"""Benchmarks with a result of a kernel that torch or a check reads on the host."""

decisions = itertools.count()
messages = dict.fromkeys(((source, target) for source in range(64) for target in range(64)), 0)


def pytest_runtest_setup(item):
    read = READ_BACK.get(item.originalname)
    if read and "[cuda" in item.name:
        pytest.skip(f"pretend kernels compute nothing, and the host reads {read}")


def _unchecked(*_, **__):
    return verify.unchecked("pretend kernels compute nothing")


def _numbers(curve):
    """Losses that nobody computed, as numbers that a results file takes."""

    def known(*arguments):
        answer = curve(*arguments)
        losses = answer.get("losses", []) if isinstance(answer, dict) else answer
        losses[:] = [loss if math.isfinite(loss) else 0.0 for loss in losses]
        return answer

    return known


def _decide_on_rank_0(rank, decide):
    if rank.world_size == 1:
        return decide()
    key = f"decision {next(decisions)}"
    if rank.number == 0:
        _store().set(key, pickle.dumps(decide()))
    return pickle.loads(_store().get(key))


def _store():
    return dist.distributed_c10d._get_default_store()


def _key(source, target):
    messages[source, target] += 1
    return f"objects from {source} to {target}: {messages[source, target]}"


def _send_object_list(objects, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    target = group_dst if dst is None else dst
    _store().set(_key(dist.get_rank(), target), pickle.dumps(objects))


def _recv_object_list(objects, src=None, group=None, device=None, group_src=None, use_batch=False):
    source = group_src if src is None else src
    objects[:] = pickle.loads(_store().get(_key(source, dist.get_rank())))
    return source


def _gather_object(each, gathered=None, dst=0, group=None):
    if dist.get_rank() != dst:
        return _send_object_list([each], dst)
    for rank in range(dist.get_world_size()):
        part = [each]
        if rank != dst:
            _recv_object_list(part, rank)
        gathered[rank] = part[0]


Preparation._reference = _unchecked
distributed.Training.check = lambda job: _unchecked(job.gradient())
training.require_learning = lambda *_: None
training.loss_curve = _numbers(training.loss_curve)
distributed.Training.record = _numbers(distributed.Training.record)
ranks._decide_on_rank_0 = _decide_on_rank_0
dist.send_object_list, dist.recv_object_list, dist.gather_object = _send_object_list, _recv_object_list, _gather_object
