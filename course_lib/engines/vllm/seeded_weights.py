"""Weights for a synthetic shape: N(0, 0.02) matrices and norms of 1, drawn from a seed that the tensor's name fixes.

vLLM's own dummy weights are about 1e-3 and hide every effect (all deltas come out exactly zero). The values depend on
the device's generator, so a shape's outputs compare within one kind of hardware only.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

LOAD_FORMAT = "course-seeded"
STANDARD_DEVIATION = 0.02


@register_model_loader(LOAD_FORMAT)
class SeededWeights(BaseModelLoader):
    def download_model(self, model_config: Any) -> None:
        """Nothing to fetch."""

    def load_weights(self, model: Any, model_config: Any) -> None:
        for name, tensor in model.named_parameters():
            if "norm" in name:
                tensor.data.fill_(1.0)
                continue
            generator = torch.Generator(device=tensor.device).manual_seed(zlib.crc32(name.encode()))
            # drawn in float32 and rounded through bfloat16, so that every dtype arm has equal weights
            values = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
            values.normal_(0.0, STANDARD_DEVIATION, generator=generator)
            tensor.data.copy_(values.to(torch.bfloat16))
