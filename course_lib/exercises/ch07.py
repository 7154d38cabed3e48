"""Chapter 7: batch composition, its controls, and kernels that change at a boundary."""

from course_lib.exercises import Exercise, close_to, one_of
from course_lib.i18n import N_

EXERCISES = [
    Exercise(
        name="ch07-rows",
        right=one_of(125),
        praise=N_("Rows are scheduled tokens: one for each decoding request, and every token of the chunk."),
        hint=N_("Count the tokens that the step computes, not the requests."),
        misconceptions=(
            (one_of(6), N_("That is the number of requests. A prompt's chunk brings a row for each of its tokens.")),
            (one_of(120), N_("The five decoding requests are in the same step, with one token each.")),
            (one_of(720), N_("Nothing is padded: a decoding request brings one row, not as many as the chunk.")),
        ),
    ),
    Exercise(
        name="ch07-square",
        right=one_of("a"),
        praise=N_("With the split off nothing is divided, and B equals those cells. Being alone brings the split."),
        hint=N_("In C and D nothing can be divided. Which of the other two equals them?"),
        misconceptions=(
            (one_of("b"), N_("B is equal to C and D, where no split is possible. Company changed no sum here.")),
            (one_of("c", "d"), N_("There the split is off, so no context can be divided.")),
        ),
    ),
    Exercise(
        name="ch07-verdict",
        right=one_of("not observed here"),
        praise=N_("The effect was not there to be removed, so this machine cannot tell whether the remedy works."),
        hint=N_("Did anything diverge without the remedy?"),
        misconceptions=(
            (one_of("fixed"), N_("It did not diverge without the remedy either. There was nothing to fix.")),
            (one_of("refuted"), N_("Nothing shows that the remedy fails. The test had nothing to test.")),
        ),
    ),
    Exercise(
        name="ch07-boundary",
        right=one_of(216),
        praise=N_("40 + 216 = 256. A neighbour's prompt can change the kernel of requests that only decode."),
        hint=N_("The 40 decoding tokens count as well."),
        misconceptions=(
            (one_of(256), N_("You forgot the 40 rows that the decoding requests bring.")),
            (one_of(217), N_("From 256 on means that 256 itself counts.")),
            (one_of(215), N_("Then the step holds 255 tokens, one less than the boundary.")),
        ),
    ),
    Exercise(
        name="ch07-score",
        right=one_of(2),
        praise=N_("52 and 50 problems. A net change of two, with who knows how many that went both ways."),
        hint=N_("Turn both rates into counts of 164."),
        misconceptions=(
            (close_to(1.22, 0.01), N_("Those are percentage points. The question asks for problems.")),
            (close_to(200, 0.01), N_("That is 1.22 times 164, without dividing by 100.")),
        ),
    ),
]
