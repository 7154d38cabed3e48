"""Chapter 4: numbers that do not add up."""

from course_lib.errors import ConfigError
from course_lib.exercises import Exercise, close_to, one_of
from course_lib.i18n import N_
from course_lib.numerics import FP16, sum_in_order

STALL = (2048, 1, 1, 1, 1, -2048)
SEEN = 1 - (1 - 1 / 60_000) ** 576  # chance that one row of 576 outputs shows what one output in 60,000 does


def _sum(order: list[int]) -> float:
    """The sum of STALL in fp16, in this order; nan for what is no order."""
    try:
        return float(sum_in_order(STALL, order, FP16))
    except ConfigError:
        return float("nan")


EXERCISES = [
    Exercise(
        name="ch04-largest-run",
        right=one_of(256),
        praise=N_("8 significant bits reach 2⁸ = 256, and 257 is a tie between 256 and 258."),
        hint=N_("Count bf16's significant bits, the implied one too. How far do they count without a gap?"),
        misconceptions=(
            (one_of(128, 127), N_("Those are the 7 stored bits. The leading one is not stored, and counts.")),
            (one_of(255), N_("256 = 2⁸ needs one significant bit only, so it is exact too.")),
            (one_of(2048), N_("That is fp16, with its 11 significant bits.")),
            (lambda v: v > 1e6, N_("That is range. The question is about precision: where do the gaps begin?")),
        ),
    ),
    Exercise(
        name="ch04-tf32",
        right=one_of("same", "neither", "equal", "the same"),
        praise=N_("Both store 10 mantissa bits. TF32 has fp32's 8 exponent bits, so what differs is the range."),
        hint=N_("Compare `FORMATS['tf32'].mantissa_bits` with `FORMATS['fp16'].mantissa_bits`."),
        misconceptions=(
            (one_of("fp16"), N_("So say the lecture notes. Both have 10 mantissa bits.")),
            (one_of("tf32"), N_("Its name speaks of 32 bits, and it uses 19: fp16's mantissa.")),
        ),
    ),
    Exercise(
        name="ch04-step",
        right=close_to(0.125, 1e-6),
        praise=N_("20 lies between 16 and 32, where bf16 has 2⁷ equal steps for a width of 16."),
        hint=N_("Between one power of two and the next there are 2⁷ steps. How wide is that interval around 20?"),
        misconceptions=(
            (close_to(2**-7, 1e-6), N_("That is epsilon, the step at 1. Steps double at each power of two.")),
            (close_to(2**-6, 1e-3), N_("That is fp16's step at 20, eight times finer.")),
            (close_to(0.0625, 1e-6), N_("That is the step between 8 and 16. 20 lies in the next interval.")),
        ),
    ),
    Exercise(
        name="ch04-order",
        right=lambda order: _sum(order) == 4,
        praise=N_("The ones must meet each other before they meet 2048, or meet it after it has been cancelled."),
        hint=N_("Give all six indices, 0 to 5. At 2048 fp16 steps by 2: what does 2048 + 1 become?"),
        misconceptions=(
            (lambda order: _sum(order) == 0, N_("Each 1 met 2048 alone: half a step, a tie, lost.")),
            (lambda order: _sum(order) in (1, 2, 3), N_("Some of the ones still met 2048 one at a time.")),
        ),
    ),
    Exercise(
        name="ch04-one-row",
        right=close_to(SEEN, 0.02),
        praise=N_("About one test in a hundred would notice. Many rows, not many reruns, make such a test honest."),
        hint=N_("One output is the same with probability 1 - 1/60000. It sees nothing if all 576 are."),
        misconceptions=(
            (close_to(1 / 60_000, 0.02), N_("That is the chance for one output. The row has 576 of them.")),
            (close_to(1 - SEEN, 0.005), N_("That is the chance that the test misses it.")),
            (one_of(1, 0, 1.0, 0.0), N_("Neither certain nor impossible: such outputs are rare.")),
        ),
    ),
]
