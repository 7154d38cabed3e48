"""Forty questions with a right answer: of the replies that fork, how many change the answer?"""

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair
from course_lib.prompts import questions

bf16 = EngineConfig(dtype="bfloat16")
arms = {
    "alone": Arm(config=bf16, schedule=Schedule.alone()),
    "in eights": Arm(config=bf16, schedule=Schedule.groups(8)),
    "in eights, fp16": Arm(config=bf16.but(dtype="float16"), schedule=Schedule.groups(8)),
    "in eights, fp8 cache": Arm(config=bf16.but(kv_cache_dtype="fp8"), schedule=Schedule.groups(8)),
}
arms["in eights again"] = arms["in eights"]

EXPERIMENT = Experiment(
    name="answers",
    question="When replies fork, how often does the answer itself change?",
    arms=arms,
    pairs={
        "batch": Pair(a="alone", b="in eights"),
        "fp16": Pair(a="in eights", b="in eights, fp16"),
        "fp8_cache": Pair(a="in eights", b="in eights, fp8 cache"),
        "rerun": Pair(a="in eights", b="in eights again", role="rerun"),
    },
    prompts=tuple(q.text for q in questions()),
    sampling=Sampling(max_tokens=24),
    keep_traces=40,
)
