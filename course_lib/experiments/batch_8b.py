"""One request alone and among others at the shape of an 8B model: where a GPU's batch variance shows.

The weights are random (see `seeded_weights`), so the text means nothing; the arithmetic is that of a real 8B model.
"""

import random

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair

VOCABULARY = 128_000
PROMPT_TOKENS = 64

draw = random.Random(0)
prompts = tuple(tuple(draw.randrange(1000, VOCABULARY) for _ in range(PROMPT_TOKENS)) for _ in range(16))

arms: dict[str, Arm] = {}
pairs: dict[str, Pair] = {}
configs = {
    "bf16": EngineConfig(model="shape:llama-8b", kv_cache_gib=4.0),
    "fp16": EngineConfig(model="shape:llama-8b", kv_cache_gib=4.0, dtype="float16"),
    "bf16 invariant": EngineConfig(model="shape:llama-8b", kv_cache_gib=4.0, batch_invariant=True),
}
for short, config in configs.items():
    pair = short.replace(" ", "_")
    arms[f"{short} alone"] = Arm(config=config, schedule=Schedule.alone())
    arms[f"{short} alone again"] = arms[f"{short} alone"]
    pairs[f"{pair}_rerun"] = Pair(a=f"{short} alone", b=f"{short} alone again", role="rerun")
    for n in (2, 8, 16):
        arms[f"{short} n={n}"] = Arm(config=config, schedule=Schedule.groups(n))
        role = "control" if config.batch_invariant else "effect"
        pairs[f"{pair}_n{n}"] = Pair(a=f"{short} alone", b=f"{short} n={n}", role=role)

EXPERIMENT = Experiment(
    name="batch-8b",
    question="Does an answer depend on its neighbours at an 8B model's shape, and do batch-invariant kernels stop it?",
    arms=arms,
    pairs=pairs,
    prompts=prompts,
    sampling=Sampling(max_tokens=64, ignore_eos=True),
    chat=False,
    needs_gpu=True,
    keep_traces=3,
)
