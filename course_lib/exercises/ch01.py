"""Chapter 1: forks, kinds of divergence, and what they cost."""

from course_lib.exercises import Exercise, close_to, one_of
from course_lib.i18n import N_

EXERCISES = [
    Exercise(
        name="ch01-first-fork",
        right=one_of(4),
        praise=N_("Four tokens are equal, so the first that differs has index 4. What follows it is not compared."),
        hint=N_("Count from 0, and stop at the first id that differs."),
        misconceptions=(
            (one_of(5), N_("You counted from 1. In vLLM and in every trace of this course the first token is 0.")),
            (one_of(3), N_("That is the last token that both have. The fork is the first one that differs.")),
            (
                one_of(1),
                N_("That is how many ids differ. After the fork nothing can be compared."),
            ),
        ),
    ),
    Exercise(
        name="ch01-kind",
        right=one_of("schedule"),
        praise=N_("Each schedule repeats itself, and the two differ: the requests that share a step are what changed."),
        hint=N_("What does a rerun do when nothing changes? And what changed between the two series?"),
        misconceptions=(
            (one_of("random"), N_("A random effect would not give the same answer 20 times in a row, twice.")),
            (
                one_of("implementation"),
                N_("Engine, weights and configuration are the same. Only the company in the step changed."),
            ),
        ),
    ),
    Exercise(
        name="ch01-audit",
        right=close_to(1 - 0.99**100, 0.02),
        praise=N_("1 - 0.99¹⁰⁰. A rate that sounds small per answer makes a clean replay of a whole log unlikely."),
        hint=N_("First the chance that all 100 agree, then its complement."),
        misconceptions=(
            (close_to(0.01), N_("That is the chance for one answer. The auditor needs all 100 to agree.")),
            (close_to(1.0, 0.001), N_("You added the rates: that gives the expected number of forks.")),
            (close_to(0.99**100), N_("That is the chance that nothing differs. The question asks for its complement.")),
        ),
    ),
    Exercise(
        name="ch01-sources",
        right=lambda v: set(v.lower()) - set(" ,") == set("ace"),
        praise=N_("The number of tokens may choose the kernel, the format rounds, the template makes the ids."),
        hint=N_("Look at the second diagram: which items have the sign ≠?"),
        misconceptions=(
            (
                lambda v: "d" in v.lower(),
                N_("Block ids only form addresses. The kernel walks through the tokens in their logical order."),
            ),
            (
                lambda v: "b" in v.lower(),
                N_("A row of a product does not see the other rows. Their number matters, not what they say."),
            ),
            (lambda v: "e" not in v.lower(), N_("Another template makes other prompt ids.")),
        ),
    ),
    Exercise(
        name="ch01-margin",
        right=one_of("something else"),
        praise=N_("Logits that move by 0.03 nat cannot close a gap of 0.9. Compare prompts and penalties."),
        hint=N_("Can a drift of that size make the runner-up win?"),
        misconceptions=(
            (
                one_of("numerics"),
                N_("Drift flips only a near tie, and this margin is 30 times the drift."),
            ),
        ),
    ),
]
