"""Hugging Face Transformers as the reference: plain PyTorch, greedy, no paging, no scheduler."""

from __future__ import annotations

import gc
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.engines.schedule import arrivals
from course_lib.engines.worker import Tick
from course_lib.errors import ConfigError, NotAvailableHere
from course_lib.models import ModelFiles


class Reference:
    def __init__(self, config: EngineConfig, model: ModelFiles) -> None:
        if model.synthetic:
            raise NotAvailableHere("a synthetic shape exists only inside vLLM; the reference needs weights on disk")
        if config.cpu_threads:
            torch.set_num_threads(config.cpu_threads)
        self.config = config
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = (
            AutoModelForCausalLM.from_pretrained(model.path, dtype=getattr(torch, config.dtype)).to(self.device).eval()
        )
        self.model.generation_config = transformers.GenerationConfig()  # no penalties that the model ships
        self.tokenizer = AutoTokenizer.from_pretrained(model.path, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token

    def resolved(self) -> dict[str, Any]:
        return {
            "engine": f"transformers {transformers.__version__}",
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "attention_backend": self.model.config._attn_implementation,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "max_model_len": min(self.config.max_model_len, self.model.config.max_position_embeddings),
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        }

    def tokenise(self, prompts: list[str], chat: bool) -> list[list[int]]:
        if not chat:
            return [self.tokenizer.encode(p) for p in prompts]
        render = self.tokenizer.apply_chat_template
        texts = [render([{"role": "user", "content": p}], tokenize=False, add_generation_prompt=True) for p in prompts]
        return [self.tokenizer.encode(t, add_special_tokens=False) for t in texts]

    def decode(self, ids: list[list[int]]) -> list[list[str]]:
        return [[self.tokenizer.decode([i]) for i in row] for row in ids]

    @torch.inference_mode()
    def generate(self, ids: list[list[int]], schedule: Schedule, sampling: Sampling, tick: Tick) -> list[dict]:
        if sampling.temperature > 0 or sampling.repetition_penalty != 1:
            raise ConfigError("the Transformers reference is greedy: temperature 0, no penalties")
        if schedule.kind == "staggered":
            raise ConfigError("the Transformers reference batches statically: requests cannot arrive later")
        traces: dict[int, dict] = {}
        for wave in arrivals(ids, schedule):
            batch = self.tokenizer.pad({"input_ids": [a.ids for a in wave]}, return_tensors="pt").to(self.device)
            stop = [] if sampling.ignore_eos else [self.tokenizer.eos_token_id]
            out = self.model.generate(
                **batch, do_sample=False, max_new_tokens=sampling.max_tokens, output_logits=True,
                return_dict_in_generate=True, pad_token_id=self.tokenizer.pad_token_id, eos_token_id=stop or None,
            )  # fmt: skip
            logprobs = torch.log_softmax(torch.stack(out.logits, 1).float(), -1)
            answers = out.sequences[:, batch["input_ids"].shape[1] :].tolist()
            for row, arrival in enumerate(wave):
                if not arrival.watched:
                    continue
                answer = answers[row]
                end = next((i + 1 for i, t in enumerate(answer) if t in stop), len(answer))
                traces[arrival.prompt] = self._trace(answer[:end], logprobs[row, :end], sampling.top_k_logprobs) | {
                    "finish_reason": "stop" if end and answer[end - 1] in stop else "length"
                }
            tick(sum(len(t["token_ids"]) for t in traces.values()))
        return [traces[i] for i in range(len(ids))]

    @torch.inference_mode()
    def score(self, prompts: list[list[int]], answers: list[list[int]], top_k: int, tick: Tick) -> list[dict]:
        traces = []
        for prompt, answer in zip(prompts, answers, strict=True):
            logits = self.model(torch.tensor([prompt + answer], device=self.device)).logits[0, len(prompt) - 1 : -1]
            traces.append(self._trace(answer, torch.log_softmax(logits.float(), -1), top_k))
            tick(len(traces))
        return traces

    def _trace(self, answer: list[int], logprobs: torch.Tensor, k: int) -> dict:
        """logprobs: [T, vocabulary], natural logarithms."""
        chosen = logprobs[torch.arange(len(answer)), torch.tensor(answer, device=logprobs.device)].tolist()
        values, ids = logprobs.topk(k)
        return {
            "token_ids": answer,
            "tokens": self.decode([answer])[0],
            "logprobs": [float(f"{x:.9g}") for x in chosen],
            "top": [
                [(i, float(f"{v:.9g}")) for i, v in zip(row_ids, row, strict=True)]
                for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
            ],
        }

    def close(self) -> None:
        del self.model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
