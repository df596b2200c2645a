"""A pytest plugin for the pretend runtime, whose kernels compute nothing: answers aren't checked, cuDNN isn't used."""

import torch

from gpubench.measure import verify
from gpubench.measure.fixture import Gpubench

torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)
Gpubench._reference = lambda self, prepared: verify.unchecked("pretend kernels compute nothing")
