"""The same prompts in groups of growing size: where does the answer change, and does it go on changing?"""

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair
from course_lib.prompts import open_prompts

SIZES = (1, 2, 3, 4, 8, 16)

arms = {f"n={n}": Arm(config=EngineConfig(), schedule=Schedule.groups(n)) for n in SIZES}
pairs = {f"n{n}": Pair(a="n=1", b=f"n={n}") for n in SIZES[1:]}
# among sizes of two and more: is it the number of neighbours, or that there are any?
pairs |= {f"n2_n{n}": Pair(a="n=2", b=f"n={n}") for n in SIZES[2:]}
arms["n=8 again"] = arms["n=8"]
pairs["n8_rerun"] = Pair(a="n=8", b="n=8 again", role="rerun")

EXPERIMENT = Experiment(
    name="batch-sweep",
    question="At which batch size does the answer change, and does it change again at larger ones?",
    arms=arms,
    pairs=pairs,
    prompts=open_prompts(16),
    sampling=Sampling(max_tokens=64),
)
