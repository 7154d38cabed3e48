"""What pages are made of: the chapters that exist, the claim ledger, the records, and the commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree
from sphinx.util.docutils import SphinxDirective
from sphinx.util.matching import patfilter

from course_lib import claims, evidence
from course_lib import experiments as registry
from course_lib.errors import CourseError
from course_lib.evidence import Evidence

FIGURES = {
    "n": "n",
    "identical": "bit-identical",
    "forks": "forks",
    "first_fork": "first fork at token",
    "positions_differing": "logprobs that differ",
    "max_abs_dlogprob": "largest drift (nat)",
    "mean_abs_dlogprob": "mean drift (nat)",
    "kl_max": "largest KL (nat)",
    "top_1_agreement": "same top token",
    "max_fork_margin": "widest margin that forked (nat)",
}


def section(ident: str, *title: nodes.Node) -> nodes.section:
    return nodes.section("", nodes.title("", "", *title), ids=[ident], names=[ident])


def paragraph(*parts: str | nodes.Node, **attributes: Any) -> nodes.paragraph:
    return nodes.paragraph("", "", *(nodes.Text(p) if isinstance(p, str) else p for p in parts), **attributes)


def link(text: str, page: str, anchor: str) -> nodes.reference:
    """A link into a page of this folder; all pages that use it lie in it too."""
    return nodes.reference("", text, refuri=f"{page}.html#{anchor}", internal=True)


def grid(head: Iterable[str], rows: Iterable[Iterable[str | nodes.Node]], *classes: str) -> nodes.table:
    """A table; cells are text or inline nodes."""
    head = list(head)

    def row(cells: Iterable[str | nodes.Node]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", paragraph(c)) for c in cells))

    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", row(head))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group, classes=["colwidths-auto", *classes])


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def slug(verdict: str) -> str:
    return "verdict-" + verdict.replace(" ", "-")


class Part(TocTree):
    """A toctree that leaves out patterns which match no chapter yet, and itself when none does."""

    def run(self) -> list[nodes.Node]:
        there = [i for i, p in enumerate(self.content) if patfilter(self.env.found_docs, p.lstrip("/"))]
        self.content = StringList([self.content[i] for i in there], items=[self.content.items[i] for i in there])
        self.env.note_reread()
        return super().run() if there else []


class Page(SphinxDirective):
    """A directive whose page is made anew in each build; what the library refuses fails the build."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        try:
            return list(self.build())
        except CourseError as e:
            raise self.error(str(e)) from e

    def build(self) -> Iterable[nodes.Node]:
        raise NotImplementedError

    def chapter(self, number: int) -> list[nodes.Node]:
        """A chapter's title with a link to it; nothing while it does not exist."""
        found = [d for d in self.env.found_docs if d.startswith(f"notebooks/{number:02}_")]
        if not found:
            return []
        target = {"refdomain": "std", "reftype": "doc", "refdoc": self.env.docname, "reftarget": "/" + found[0]}
        return [paragraph(addnodes.pending_xref("", nodes.inline(), refexplicit=False, refwarn=True, **target))]


class Ledger(Page):
    def build(self) -> Iterable[nodes.Node]:
        by_chapter: dict[int, list[claims.Claim]] = {}
        for claim in claims.ledger().values():
            by_chapter.setdefault(claim.chapter, []).append(claim)
        for number, of_chapter in sorted(by_chapter.items()):
            part = section(f"claims-chapter-{number}", nodes.Text(f"Chapter {number}"))
            part["classes"] += ["claims"]
            part += self.chapter(number)
            part += [self.card(c) for c in of_chapter]
            yield part

    def card(self, claim: claims.Claim) -> nodes.container:
        judged = claims.judge(claim)
        verdicts = sorted({slug(j.verdict) for j in judged})
        card = nodes.container("", classes=["claim", *verdicts], ids=[f"claim-{claim.id}"])
        card += paragraph(claim.claim, classes=["claim-text"])
        for j in judged:
            badge = nodes.inline("", j.verdict, classes=["verdict", slug(j.verdict)])
            where = [nodes.inline("", j.evidence, classes=["claim-where"]), " "] if j.evidence else []
            card += paragraph(badge, " ", *where, j.finding, classes=["claim-finding"])
        decided: list[str | nodes.Node] = []
        if claim.experiment:
            decided = [" · experiment ", link(claim.experiment, "evidence", f"experiment-{claim.experiment}")]
        elif claim.computed:
            decided = [" · computed by ", nodes.literal("", claim.computed)]
        card += paragraph("Scope: ", claim.scope, classes=["claim-facts"])
        card += paragraph(
            "Source: ", claim.source, *decided, " · ", nodes.literal("", claim.id), classes=["claim-facts"]
        )
        return card


class Records(Page):
    def build(self) -> Iterable[nodes.Node]:
        for name in registry.names():
            exp = registry.experiment(name)
            part = section(f"experiment-{name}", nodes.Text(name))
            part += paragraph(exp.question)
            part += self.judged(name)
            kinds = evidence.recorded(name)
            part += [self.record(evidence.load(name, kind)) for kind in kinds] or [paragraph("No record yet.")]
            yield part

    def judged(self, name: str) -> list[nodes.Node]:
        """The claims that this experiment decides."""
        ids = [c.id for c in claims.ledger().values() if c.experiment == name]
        links = [part for i in ids for part in (", ", link(i, "ledger", f"claim-{i}"))][1:]
        return [paragraph("Decides ", *links, ".")] if links else []

    def record(self, found: Evidence) -> nodes.section:
        part = section(f"record-{found.experiment}-{found.hardware['kind']}", nodes.Text(found.hardware["kind"]))
        machine, made = found.hardware, found.provenance
        gpus = ", ".join(f"{g['name']}, {g['memory_gib']} GiB, driver {g['driver']}" for g in machine["gpus"])
        weights = made["weights_sha256"]
        size = f"{machine['cores']} cores, {machine['memory_gib']} GiB"
        facts = {
            "Recorded": f"{made['time']}, in {found.seconds:.0f} s, at revision {made['source']}",
            "Machine": f"{machine['cpu']}, {size}" + (gpus and f"; {gpus}"),
            "Versions": ", ".join(f"{k} {v}" for k, v in ({"Python": machine["python"]} | machine["versions"]).items()),
            "Model": f"{made['model']}, weights {weights[:16] + '…' if len(weights) == 64 else weights}",
            "Sampling": ", ".join(f"{k} {text(v)}" for k, v in found.sampling.model_dump().items() if v is not None),
        }
        names = {name: nodes.field_name("", name) for name in facts}
        part += nodes.field_list(
            "", *(nodes.field("", names[k], nodes.field_body("", paragraph(v))) for k, v in facts.items())
        )
        part += self.findings(found)
        part += [paragraph(f"{pair}: not run. {why}") for pair, why in found.missing.items()]
        return part

    def findings(self, found: Evidence) -> nodes.table:
        exp = registry.experiment(found.experiment)
        figures = {name: c.figures() for name, c in found.comparisons.items()}
        columns = {k: v for k, v in FIGURES.items() if any(f.get(k) is not None for f in figures.values())}
        rows = (
            [nodes.literal("", name), exp.pairs[name].role, ", ".join(exp.changed(name)) or "–"]
            + [text(f.get(k)) for k in columns]
            for name, f in figures.items()
        )
        return grid(["pair", "role", "what changes", *columns.values()], rows, "findings")


class Commands(Page):
    def build(self) -> Iterable[nodes.Node]:
        from course_lib.cli import app

        plain = typer.Typer(**{"no_args_is_help": True, "add_completion": False, "rich_markup_mode": None})
        plain.info, plain.registered_commands = app.info, app.registered_commands
        group = typer.main.get_command(plain)
        context = group.make_context("course", [], resilient_parsing=True, max_content_width=76, terminal_width=76)
        yield self.help(group.get_help(context))
        for name, command in sorted(group.commands.items()):
            part = section(f"course-{name}", nodes.literal("", f"course {name}"))
            inner = type(context)(command, parent=context, info_name=name, max_content_width=76, terminal_width=76)
            part += self.help(command.get_help(inner))
            yield part

    def help(self, shown: str) -> nodes.literal_block:
        return nodes.literal_block(shown, shown, language="text")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("part", Part)
    app.add_directive("claim-ledger", Ledger)
    app.add_directive("evidence-records", Records)
    app.add_directive("course-commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
