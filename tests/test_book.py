"""The web book as it is built: no warning, no dead link, nothing fetched from elsewhere, every claim judged."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from course_lib import claims, evidence, experiments

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book, built from nothing, as `make book` builds it."""
    out = tmp_path_factory.mktemp("book") / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", "book", ".", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and not done.stderr, done.stderr[-5000:]
    return out


@cache
def anchors(page: Path) -> set[str]:
    return {tag["id"] for tag in parsed(page).find_all(id=True)}


@cache
def parsed(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf8"), "html.parser")


def pages(book: Path) -> list[Path]:
    return sorted(p for p in book.rglob("*.html") if "_static" not in p.parts)


def test_every_chapter_is_a_page_and_can_be_downloaded(book: Path):
    front = {a.get("href") for a in parsed(book / "book/index.html").select("article a")}
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        page = book / "notebooks" / f"{notebook.stem}.html"
        assert f"../notebooks/{page.name}" in front
        assert f"../_sources/notebooks/{notebook.name}" in {a.get("href") for a in parsed(page).select("a")}
    assert parsed(book / "index.html").a["href"] == "book/index.html"


def test_links_and_images_lead_somewhere(book: Path):
    dead = []
    for page in pages(book):
        for tag in parsed(page).select("a[href], img[src], link[href], script[src]"):
            url = urlsplit(tag.get("href") or tag.get("src"))
            if url.scheme or url.netloc:
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            there = target.exists()
            if there and url.fragment and target.suffix == ".html":
                there = unquote(url.fragment) in anchors(target)
            if not there:
                dead.append(f"{page.relative_to(book)}: {url.geturl()}")
    assert not dead


def test_nothing_is_fetched_from_elsewhere(book: Path):
    fetched = []
    for page in pages(book):
        fetching = "[src], [srcset], link[rel~=stylesheet], link[rel~=preload], link[rel~=icon], link[rel~=preconnect]"
        for tag in parsed(page).select(fetching):
            url = tag.get("src") or tag.get("srcset") or tag.get("href") or ""
            if urlsplit(url).netloc:
                fetched.append(f"{page.relative_to(book)}: {url}")
        for tag in parsed(page).select("style, script:not([src])"):
            if "import(" in (code := tag.get_text()) or "@import" in code or "url(http" in code or "url(//" in code:
                fetched.append(f"{page.relative_to(book)}: {code[:80]}")
    for sheet in book.rglob("*.css"):
        text = sheet.read_text(encoding="utf8").replace('"', "").replace("'", "")
        fetched += [f"{sheet.name}: {mark}" for mark in ("url(http", "url(//", "@import http") if mark in text]
    assert not fetched


def test_the_ledger_page_holds_every_claim_with_its_verdicts(book: Path):
    page = parsed(book / "book/ledger.html")
    assert len(page.select(".claim")) == len(claims.ledger())
    for ident, claim in claims.ledger().items():
        card = page.find(id=f"claim-{ident}")
        assert card.select_one(".claim-text").get_text().strip()
        assert [v.get_text() for v in card.select(".verdict")] == [j.verdict for j in claims.judge(claim)]
        assert ident in card.get_text()


def test_the_evidence_page_holds_every_record(book: Path):
    page = parsed(book / "book/evidence.html")
    for name in experiments.names():
        for kind in evidence.recorded(name):
            found = evidence.load(name, kind)
            record = page.find(id=f"record-{name}-{kind}")
            assert found.provenance["time"] in record.get_text()
            assert [row.td.get_text() for row in record.select("tbody tr")] == list(found.comparisons)


def test_every_command_and_room_is_documented(book: Path):
    from course_lib.cli import app

    commands = parsed(book / "book/commands.html")
    for command in app.registered_commands:
        assert commands.find(id=f"course-{command.name or command.callback.__name__}")
    modules = {tag["id"] for p in (book / "book/api").glob("*.html") for tag in parsed(p).select("[id^=module-]")}
    rooms = {p.stem for p in (ROOT / "course_lib").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    inner = {"__init__", "cli", "i18n", "files", "plots", "models"}
    assert {f"module-course_lib.{room}" for room in rooms - inner} <= modules
