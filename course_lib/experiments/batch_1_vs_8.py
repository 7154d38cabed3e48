"""The same prompts one at a time and eight at a time, in three number formats."""

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair, reruns
from course_lib.prompts import open_prompts

arms: dict[str, Arm] = {}
pairs: dict[str, Pair] = {}
for short, dtype in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")):
    config = EngineConfig(dtype=dtype)
    arms[f"{short} alone"] = Arm(config=config, schedule=Schedule.alone())
    arms[f"{short} in eights"] = Arm(config=config, schedule=Schedule.groups(8))
    pairs[short] = Pair(a=f"{short} alone", b=f"{short} in eights")
reruns(pairs, arms, of=["bf16 alone", *(name for name in list(arms) if "eights" in name)])

EXPERIMENT = Experiment(
    name="batch-1-vs-8",
    question="Does an answer depend on whether seven other requests are served beside it?",
    arms=arms,
    pairs=pairs,
    prompts=open_prompts(16),
    sampling=Sampling(max_tokens=64),
)
