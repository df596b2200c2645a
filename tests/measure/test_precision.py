"""Matrix precision: float32 is IEEE, TF32 is asked for by name, and what was set before is put back."""

import pytest
import torch

from gpubench.measure.precision import matmul_precision


def test_float32_is_ieee_and_tf32_is_asked_for_by_name():
    torch.set_float32_matmul_precision("high")
    try:
        with matmul_precision("float32"):
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.backends.cudnn.allow_tf32 is False
        with matmul_precision("tf32"):
            assert torch.get_float32_matmul_precision() == "high"
            assert torch.backends.cudnn.allow_tf32 is True
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_newer_precision_switches_are_overridden_and_put_back():
    backends = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the older switches only")
    backends.cuda.matmul.fp32_precision = "tf32"
    backends.cudnn.fp32_precision = "tf32"
    backends.mkldnn.conv.fp32_precision = "bf16"
    switches = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.conv)
    before = [switch.fp32_precision for switch in switches]
    try:
        with matmul_precision("float32"):
            assert {switch.fp32_precision for switch in switches} == {"ieee"}
        assert [switch.fp32_precision for switch in switches] == before
        with matmul_precision("tf32"):
            assert [switch.fp32_precision for switch in switches] == ["tf32", "tf32", "tf32", "ieee"]
    finally:
        backends.cudnn.fp32_precision = "none"
        for switch in switches:
            switch.fp32_precision = "ieee"
        torch.set_float32_matmul_precision("highest")
