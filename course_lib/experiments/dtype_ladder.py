"""One set of answers, written by a float32 reference and scored by every number format (teacher forcing)."""

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.experiments.base import Arm, Experiment, Pair
from course_lib.prompts import open_prompts

REFERENCE = "hf fp32"
WHY = "the reference is another implementation in another format: both changes belong to the question"

arms = {REFERENCE: Arm(config=EngineConfig(engine="transformers", dtype="float32"), schedule=Schedule.alone())}
arms["hf fp32 scores"] = Arm(config=arms[REFERENCE].config, scores=REFERENCE)
pairs: dict[str, Pair] = {}
for short, dtype in (("fp32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16")):
    arms[f"vllm {short}"] = Arm(config=EngineConfig(dtype=dtype), scores=REFERENCE)
    pairs[short] = Pair(a="hf fp32 scores", b=f"vllm {short}", because=WHY)
    arms[f"vllm {short} again"] = arms[f"vllm {short}"]
    pairs[f"{short}_rerun"] = Pair(a=f"vllm {short}", b=f"vllm {short} again", role="rerun")
arms["hf bf16"] = Arm(config=EngineConfig(engine="transformers", dtype="bfloat16"), scores=REFERENCE)
pairs["hf_bf16"] = Pair(a="hf fp32 scores", b="hf bf16")
# inside vLLM alone, where nothing changes but the format
pairs["bf16_fp16"] = Pair(a="vllm bf16", b="vllm fp16")
pairs["fp16_fp32"] = Pair(a="vllm fp16", b="vllm fp32")

EXPERIMENT = Experiment(
    name="dtype-ladder",
    question="How far is each number format from a float32 reference, on the same tokens?",
    arms=arms,
    pairs=pairs,
    prompts=open_prompts(16),
    sampling=Sampling(max_tokens=64, top_k_logprobs=20),
)
