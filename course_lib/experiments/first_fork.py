"""The picture of the course: one prompt alone and among seven others, with every answer kept, to show a fork."""

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair
from course_lib.prompts import open_prompts

arms = {
    "alone": Arm(config=EngineConfig(), schedule=Schedule.alone()),
    "among eight": Arm(config=EngineConfig(), schedule=Schedule.groups(8)),
}
arms["among eight again"] = arms["among eight"]

EXPERIMENT = Experiment(
    name="first-fork",
    question="Where do the answers to one prompt part, alone and among seven others?",
    arms=arms,
    pairs={
        "batch": Pair(a="alone", b="among eight"),
        "rerun": Pair(a="among eight", b="among eight again", role="rerun"),
    },
    prompts=open_prompts(8),
    sampling=Sampling(max_tokens=80),
    keep_traces=8,
)
