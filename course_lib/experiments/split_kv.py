"""On a CPU, vLLM may split a long context between threads. Is that why an answer depends on its batch?

Two knobs, the split (on, off) and the batch (alone, among others), so that each is seen with the other held still. The
prompts are long, because a short context is not split.
"""

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair
from course_lib.prompts import open_prompts

# the same questions in one message, each time beginning with another
questions = open_prompts(16)
prompts = tuple(" ".join(questions[i:] + questions[:i]) for i in range(8))

arms: dict[str, Arm] = {}
pairs: dict[str, Pair] = {}
for short, dtype in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")):
    for suffix, split in (("", None), ("_off", False)):
        name, config = short + suffix, EngineConfig(dtype=dtype, cpu_split_kv=split)
        for n in (1, 2, 4, 8) if short == "bf16" else (1, 8):
            arms[f"{name} n={n}"] = Arm(config=config, schedule=Schedule.groups(n))
            if n > 1:
                pairs[f"{name}_n{n}"] = Pair(a=f"{name} n=1", b=f"{name} n={n}")
# more than one neighbour against one
pairs["bf16_n2_n8"] = Pair(a="bf16 n=2", b="bf16 n=8")
# the other two sides of the square: the split changes, the batch does not
pairs["split_n1"] = Pair(a="bf16_off n=1", b="bf16 n=1")
pairs["split_n8"] = Pair(a="bf16_off n=8", b="bf16 n=8")
for n in (1, 8):
    arms[f"bf16_thread n={n}"] = Arm(config=EngineConfig(cpu_threads=1), schedule=Schedule.groups(n))
pairs["bf16_thread_n8"] = Pair(a="bf16_thread n=1", b="bf16_thread n=8")
for name in ("bf16", "bf16_off", "fp32"):
    arms[f"{name} n=8 again"] = arms[f"{name} n=8"]
    pairs[f"{name}_rerun"] = Pair(a=f"{name} n=8", b=f"{name} n=8 again", role="rerun")

EXPERIMENT = Experiment(
    name="split-kv",
    question="Does an answer still depend on its batch when no context is split between threads?",
    arms=arms,
    pairs=pairs,
    prompts=prompts,
    sampling=Sampling(max_tokens=16),
)
