"""vLLM itself, in this process: build `vllm.LLM`, step it, and note who shared each step."""

from __future__ import annotations

import gc
from collections import defaultdict
from typing import Any

import torch
import vllm
from vllm import LLM, SamplingParams

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.engines.schedule import Arrival, arrivals
from course_lib.engines.worker import Tick
from course_lib.errors import NotAvailableHere
from course_lib.models import ModelFiles

# What crosses from EngineConfig to vllm.LLM under the same name.
_SAME_NAME = (
    "dtype", "kv_cache_dtype", "model_impl", "enforce_eager", "seed", "max_num_seqs", "max_num_batched_tokens",
    "enable_chunked_prefill", "enable_prefix_caching", "block_size", "num_gpu_blocks_override", "logprobs_mode",
    "generation_config", "max_model_len", "gpu_memory_utilization", "attention_backend",
)  # fmt: skip


class VLLM:
    alive = 0  # engines in this process; they share vLLM's parallel state, so only the last one takes it down

    def __init__(self, config: EngineConfig, model: ModelFiles) -> None:
        wanted = {k: getattr(config, k) for k in _SAME_NAME if getattr(config, k) is not None}
        if config.compilation is not None:
            wanted["compilation_config"] = config.compilation
        if config.head_dtype != "model":
            wanted["hf_overrides"] = {"head_dtype": config.head_dtype}
        if model.synthetic:
            from course_lib.engines.vllm import seeded_weights

            wanted |= {"load_format": seeded_weights.LOAD_FORMAT, "skip_tokenizer_init": True}
        room = {"kv_cache_memory_bytes": int(config.kv_cache_gib * 2**30), "disable_log_stats": False}
        self.llm = LLM(**{"model": model.path} | room | wanted | config.extra)
        self.tokenizer = None if model.synthetic else self.llm.get_tokenizer()
        self.core = self.llm.llm_engine.engine_core.engine_core
        self._number = 0
        self._watch_scheduler()
        VLLM.alive += 1

    def _watch_scheduler(self) -> None:
        """Note, for every step, how many requests and tokens it holds and which requests get a token from it."""
        self.steps: dict[str, list[tuple[int, int]]] = defaultdict(list)
        scheduler, schedule = self.core.scheduler, self.core.scheduler.schedule

        def watched(*args: Any, **kwargs: Any) -> Any:
            step = schedule(*args, **kwargs)
            shares = step.num_scheduled_tokens
            for name in shares:
                request = scheduler.requests[name]
                if request.num_computed_tokens >= request.num_tokens:  # its prompt is through: this step samples
                    self.steps[name].append((len(shares), step.total_num_scheduled_tokens))
            return step

        scheduler.schedule = watched

    def resolved(self) -> dict[str, Any]:
        settings = self.llm.llm_engine.vllm_config
        worker = self.llm.llm_engine.model_executor.driver_worker.worker
        layers = settings.compilation_config.static_forward_context.values()
        backends = sorted({layer.attn_backend.get_name() for layer in layers if hasattr(layer, "attn_backend")})
        runner = worker.model_runner
        return {
            "engine": f"vllm {vllm.__version__}",
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "runner": f"{type(runner).__module__}.{type(runner).__qualname__}",
            "attention_backend": ", ".join(backends),
            "dtype": str(settings.model_config.dtype).removeprefix("torch."),
            "kv_cache_dtype": str(settings.cache_config.cache_dtype),
            "block_size": settings.cache_config.block_size,
            "num_blocks": settings.cache_config.num_gpu_blocks,
            "prefix_caching": settings.cache_config.enable_prefix_caching,
            "chunked_prefill": settings.scheduler_config.enable_chunked_prefill,
            "async_scheduling": settings.scheduler_config.async_scheduling,
            "max_num_seqs": settings.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": settings.scheduler_config.max_num_batched_tokens,
            "max_model_len": settings.model_config.max_model_len,
            "compilation_mode": str(settings.compilation_config.mode),
            "cudagraph_mode": str(settings.compilation_config.cudagraph_mode),
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        }

    def tokenise(self, prompts: list[str], chat: bool) -> list[list[int]]:
        if self.tokenizer is None:
            raise NotAvailableHere("a synthetic shape has no tokenizer: give prompts as lists of token ids")
        if not chat:
            return [self.tokenizer.encode(p) for p in prompts]
        return [chat_ids(self.tokenizer, p) for p in prompts]

    def decode(self, ids: list[list[int]]) -> list[list[str]]:
        return [[self.tokenizer.decode([i]) if self.tokenizer else f"<{i}>" for i in row] for row in ids]

    def generate(self, ids: list[list[int]], schedule: Schedule, sampling: Sampling, tick: Tick) -> list[dict]:
        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            repetition_penalty=sampling.repetition_penalty,
            max_tokens=sampling.max_tokens,
            ignore_eos=sampling.ignore_eos,
            logprobs=sampling.top_k_logprobs,
            detokenize=self.tokenizer is not None,
        )
        outputs = self._drive(arrivals(ids, schedule), params, tick)
        return [self._trace(outputs[i], sampling.top_k_logprobs) for i in range(len(ids))]

    def _drive(self, waves: list[list[Arrival]], params: SamplingParams, tick: Tick) -> dict[int, Any]:
        """Step the engine until each wave has finished; returns the watched requests' outputs by prompt index."""
        params.output_kind = vllm.sampling_params.RequestOutputKind.FINAL_ONLY
        engine, done, tokens = self.llm.llm_engine, {}, 0
        try:
            for wave in waves:
                waiting, names, step = list(wave), {}, 0
                while waiting or engine.has_unfinished_requests():
                    while waiting and (waiting[0].step <= step or not engine.has_unfinished_requests()):
                        arrival = waiting.pop(0)
                        self._number += 1
                        name = f"r{self._number}"
                        names[name] = arrival
                        engine.add_request(name, {"prompt_token_ids": arrival.ids}, params.clone())
                    for output in engine.step():
                        arrival = names[output.request_id]
                        if arrival.watched and output.finished:
                            done[arrival.prompt] = output
                    step += 1
                    tokens += engine.get_num_unfinished_requests()
                    tick(tokens)
        except BaseException:
            engine.abort_request([f"r{i}" for i in range(1, self._number + 1)], internal=False)
            while engine.has_unfinished_requests():
                engine.step()
            raise
        finally:
            self.last_steps, self.steps = dict(self.steps), defaultdict(list)
        return done

    def _trace(self, output: Any, k: int) -> dict:
        answer = output.outputs[0]
        ids = list(answer.token_ids)
        steps = self.last_steps.get(output.request_id, [])[: len(ids)]
        if len(steps) < len(ids):
            steps = []  # several tokens a step (speculative decoding): who shared a token's step is not told
        return {
            "token_ids": ids,
            "tokens": [
                row[i].decoded_token or "" if self.tokenizer else f"<{i}>"
                for i, row in zip(ids, answer.logprobs, strict=True)
            ],
            "logprobs": [exact(row[i].logprob) for i, row in zip(ids, answer.logprobs, strict=True)],
            "top": [best(row, k) for row in answer.logprobs],
            "finish_reason": answer.finish_reason,
            "step_requests": [requests for requests, _ in steps],
            "step_tokens": [total for _, total in steps],
        }

    def score(self, prompts: list[list[int]], answers: list[list[int]], top_k: int, tick: Tick) -> list[dict]:
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=top_k, detokenize=False)
        waves = arrivals([p + a for p, a in zip(prompts, answers, strict=True)], Schedule.alone())
        outputs = self._drive(waves, params, tick)
        traces = []
        for i, answer in enumerate(answers):
            rows = outputs[i].prompt_logprobs[-len(answer) :]
            traces.append({
                "token_ids": answer,
                "tokens": self.decode([answer])[0],
                "logprobs": [exact(row[t].logprob) for t, row in zip(answer, rows, strict=True)],
                "top": [best(row, top_k) for row in rows],
            })  # fmt: skip
        return traces

    def close(self) -> None:
        VLLM.alive -= 1
        self.llm.llm_engine.engine_core._finalizer.detach()  # would call core.shutdown when it is collected
        if VLLM.alive:
            self.core.model_executor.shutdown()
            self.core.scheduler.shutdown()
        else:
            self.core.shutdown()  # takes the parallel state down too
        del self.llm, self.core
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def exact(x: float) -> float:
    """A float32 in nine significant digits: short in JSON, and two of them are equal only if the floats were."""
    return float(f"{x:.9g}")


def best(row: dict[int, Any], k: int) -> list[tuple[int, float]]:
    """The k most likely tokens. The chosen token comes first in `row` and so stays first among equals."""
    return [(i, exact(entry.logprob)) for i, entry in sorted(row.items(), key=lambda item: -item[1].logprob)[:k]]


def chat_ids(tokenizer: Any, prompt: str) -> list[int]:
    """One user message in the model's chat template, as token ids."""
    message = {"role": "user", "content": prompt}
    text = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)
