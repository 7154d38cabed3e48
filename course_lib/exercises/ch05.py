"""Chapter 5: what metrics see, and what a handful of prompts can tell."""

from math import exp

from course_lib.exercises import Exercise, close_to, one_of
from course_lib.i18n import N_
from course_lib.measures import mcnemar, wilson

EXERCISES = [
    Exercise(
        name="ch05-offset",
        right=one_of("semantics"),
        praise=N_("All positions moved one way and no token changed: the two sides report different quantities."),
        hint=N_("Compare the mean of |Δ| with the signed mean. What does rounding do to a sign?"),
        misconceptions=(
            (one_of("numerics"), N_("Rounding pushes both ways, so its signed mean is far below its mean size.")),
            (
                one_of("a bug", "bug"),
                N_("A wrong cache or scale would flip tokens somewhere in 200 answers. None flipped."),
            ),
        ),
    ),
    Exercise(
        name="ch05-none-of-eight",
        right=close_to(wilson(0, 8)[1], 0.02),
        praise=N_("Nearly a third. Eight prompts cannot promise that answers do not fork."),
        hint=N_("wilson(k, n) gives both ends. What are k and n?"),
        misconceptions=(
            (lambda v: float(v) == 0, N_("That is the rate you saw. The interval asks which true rates fit it.")),
            (
                close_to(3 / 8, 0.01),
                N_("3 / n is a rule of thumb, one-sided and for large n. With n = 8 use the interval itself."),
            ),
            (close_to(1 / 8, 0.01), N_("One of eight is the next result you could see, not the limit of the rate.")),
        ),
    ),
    Exercise(
        name="ch05-mcnemar",
        right=close_to(mcnemar(9, 3), 0.02),
        praise=N_("Twelve changes split 9 to 3 are not so rare if both directions are equally likely."),
        hint=N_("mcnemar(worse, better) is imported above. Two-sided: either direction counts as extreme."),
        misconceptions=(
            (
                close_to(mcnemar(9, 3) / 2, 0.02),
                N_("That is one-sided. You did not know the direction before you saw the data."),
            ),
            (close_to(9 / 12, 0.001), N_("That is the share that got worse. The test asks how surprising it is.")),
            (close_to(3 / 9, 0.01), N_("That is the odds ratio of the changes, not a probability.")),
        ),
    ),
    Exercise(
        name="ch05-after-fork",
        right=one_of("teacher forcing"),
        praise=N_("Both engines score the same tokens, so both have the same context at position 50."),
        hint=N_("What must be the same on both sides for a number to be comparable?"),
        misconceptions=(
            (
                one_of("position by position"),
                N_("At position 50 the two engines read different texts, so their numbers are no pair."),
            ),
            (
                one_of("edit distance"),
                N_("After the fork nearly every token is an edit, whatever the cause: it saturates."),
            ),
        ),
    ),
    Exercise(
        name="ch05-ratio",
        right=close_to(exp(0.7), 0.02),
        praise=N_("e^(−0.5 + 1.2) is about 2, the very ratio of the issue."),
        hint=N_("A ratio of probabilities is e to the difference of their logarithms."),
        misconceptions=(
            (close_to(exp(-0.7), 0.02), N_("Upside down: the trainer's probability stands above.")),
            (close_to(0.7, 0.01), N_("That is the difference of the logarithms. The ratio is e to its power.")),
            (close_to(0.5 / 1.2, 0.02), N_("Logprobs are not divided. Subtract them, then take e to the result.")),
        ),
    ),
]  # fmt: skip
