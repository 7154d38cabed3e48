"""`make bench`: the times that the library promises, as ratios measured in one run. Best on an idle machine.

Writes `build/benchmarks.json` and exits 1 when a promise is broken.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 7
BUILD = Path(__file__).parents[1] / "build"


def overhead() -> dict[str, float]:
    """Eight answers from plain vLLM in this process and from course_lib, in turn. Promise: at most 3 % more."""
    import os

    from course_lib.config import EngineConfig, Sampling
    from course_lib.engines import open_engine
    from course_lib.engines.engine import environment
    from course_lib.models import resolve_model
    from course_lib.prompts import open_prompts

    os.environ.update(environment(EngineConfig()))
    engine = open_engine()
    ids = engine.tokenise(open_prompts(8))

    from vllm import LLM, SamplingParams

    llm = LLM(
        resolve_model().path, dtype="bfloat16", max_model_len=2048, enforce_eager=True, enable_prefix_caching=False,
        kv_cache_memory_bytes=2**30, generation_config="vllm", disable_log_stats=False,
    )  # fmt: skip
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, logprobs=5)

    def plain() -> list[tuple[int, ...]]:
        out = llm.generate([{"prompt_token_ids": i} for i in ids], params, use_tqdm=False)
        return [tuple(o.outputs[0].token_ids) for o in out]

    def ours() -> list[tuple[int, ...]]:
        return [t.token_ids for t in engine.run(ids, sampling=Sampling(max_tokens=48, ignore_eos=True)).traces]

    if plain() != ours():
        raise SystemExit("plain vLLM and course_lib gave different tokens: the comparison would mean nothing")
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(ROUNDS):
        times["plain"].append(_seconds(plain))
        times["ours"].append(_seconds(ours))
    best = {k: min(v) for k, v in times.items()}
    return {"plain_s": best["plain"], "course_lib_s": best["ours"], "ratio": best["ours"] / best["plain"]}


def comparing() -> dict[str, float]:
    """Comparing a million token pairs with their logprobs and five alternatives each. Promise: about a second."""
    import random

    from course_lib.compare import divergence
    from course_lib.trace import Trace

    draw = random.Random(0)
    n = 1_000_000
    ids = tuple(draw.randrange(49152) for _ in range(n))
    top = tuple(tuple((i + j, -0.1 - j) for j in range(5)) for i in ids)
    a = Trace.model_construct(prompt_ids=(1,), token_ids=ids, logprobs=(-0.1,) * n, top=top)
    b = a.model_copy(update={"token_ids": (*ids[: n // 2], 0, *ids[n // 2 + 1 :])})
    return {"million_pairs_s": statistics.median(_seconds(lambda: divergence(a, b)) for _ in range(3))}


def chapters() -> dict[str, float]:
    """All chapters in papermill. Promise for chapters 1, 4, 5 and 7: under 240 s on two cores."""
    from course_lib import runner

    outcomes = runner.execute(runner.chapters(), {"PROFILE": "auto"}, build=BUILD / "bench", again=True)
    if failed := [o for o in outcomes if not o.ok]:
        raise SystemExit(f"{failed[0].name} failed: {failed[0].error} ({failed[0].log})")
    return {o.name[:2]: o.seconds for o in outcomes} | {"all_s": sum(o.seconds for o in outcomes)}


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    # the overhead last: it leaves two engines and their environment behind
    found = {"chapters": chapters(), "compare": comparing(), "overhead": overhead()}
    foundation = sum(found["chapters"][c] for c in ("01", "04", "05", "07"))
    promises = {
        "course_lib at most 3 % over plain vLLM": found["overhead"]["ratio"] <= 1.03,
        "a million token pairs in about a second (under 2)": found["compare"]["million_pairs_s"] < 2,
        "chapters 1, 4, 5, 7 under 240 s": foundation < 240,
    }
    BUILD.mkdir(exist_ok=True)
    (BUILD / "benchmarks.json").write_text(json.dumps({"found": found, "promises": promises}, indent=1))
    print(json.dumps(found, indent=1))
    for promise, kept in promises.items():
        print("kept  " if kept else "BROKEN", promise)
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
