"""Nothing changes: the same requests again, in the same engine and in a new process. What differs is noise."""

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair
from course_lib.prompts import open_prompts

TIMES = 4

first = {
    "alone": Arm(config=EngineConfig(), schedule=Schedule.alone()),
    "together": Arm(config=EngineConfig(), schedule=Schedule.together()),
}
arms, pairs = dict(first), {}
for name, arm in first.items():
    for i in range(2, TIMES + 1):
        arms[f"{name} {i}"] = arm
        pairs[f"{name}_{i}"] = Pair(a=name, b=f"{name} {i}", role="rerun")
    arms[f"{name} new process"] = arm.but(fresh=True)
    pairs[f"{name}_new_process"] = Pair(a=name, b=f"{name} new process", role="rerun")

EXPERIMENT = Experiment(
    name="rerun",
    question="Does the same request give the same bits when nothing at all has changed?",
    arms=arms,
    pairs=pairs,
    prompts=open_prompts(8),
    sampling=Sampling(max_tokens=48),
)
