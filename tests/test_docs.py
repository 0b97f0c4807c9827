"""Docs and code agree: commands, links, addresses, fields, examples and variables that a page names exist."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from drf_spectacular.generators import SchemaGenerator

from apps.accounts.choices import Scope
from apps.admission.api import AdmissionCreate
from apps.admission.choices import Verdict
from apps.queries.serializers import ArrivalCreateSerializer
from client.cli import client_parser
from console.env import Env, variable_of
from engine.__main__ import COMMANDS as ENGINE_COMMANDS
from engine.__main__ import main as engine
from engine.document import candidate, elements, reader
from engine.document.deployment import Deployment
from engine.records import Record, record_fields
from engine.workload import GENERATORS
from lab.__main__ import COMMANDS as LAB_COMMANDS
from launcher.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

# What the document's sections describe; a name with brackets stands for the table it belongs to.
SECTIONS: dict[str, tuple[tuple[str, type[Record]], ...]] = {
    "The document": (("", reader.DeploymentRecord),),
    "Source": (("", elements.Source),),
    "Node": (("", elements.Node),),
    "Operator": (("", reader.OperatorRecord),),
    "Input": (("", reader.InputRecord),),
    "Backlog": (("", elements.Backlog),),
    "Filter, join, aggregate": (
        ("filter.", elements.FilterFeatures),
        ("join.", elements.JoinFeatures),
        ("aggregate.", elements.AggregateFeatures),
    ),
    "Split, window, evidence": (
        ("split[].", reader.PartRecord),
        ("window.", elements.Window),
        ("evidence.", elements.Evidence),
    ),
    "Link": (("", elements.Link),),
    "Combine, objectives, constraints": (
        ("combine.", elements.Combine),
        ("objectives[].", elements.Objective),
        ("constraints.", elements.Constraints),
    ),
    "Admit": (("", candidate.CandidateRecord),),
}


def _section(page: Path, title: str) -> str:
    """From a heading to the next one, of whatever level."""
    return re.split(r"^#+ ", page.read_text().split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def _first_cells(text: str) -> list[str]:
    """Names in code type in the first column of the text's tables, without their heads."""
    cells = re.findall(r"^\| (.*?) \|", re.sub(r"^\|.*\n(?=\| ---)", "", text, flags=re.MULTILINE), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def _blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def _commands(page: Path) -> Iterator[list[str]]:
    """Every `./sluice …` of a page, as words; lines of shell blocks and code in sentences."""
    blocks = "\n".join(_blocks(page, "sh")).replace("\\\n", " ")
    inline = re.findall(r"`(\./sluice[^`]*)`", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    for line in [*re.findall(r"\./sluice[^\n)]*", blocks), *inline]:
        words = shlex.split(line.replace("…", ""), comments=True)[1:]
        ends = [i for i, word in enumerate(words) if word in ("|", ">")]
        yield words[: ends[0]] if ends else words


@each_page
def test_commands_exist_and_take_their_options(page: Path) -> None:
    for name, *rest in filter(None, _commands(page)):
        assert name in {*COMMANDS, "help"}, name
        if any(word.isupper() for word in rest):  # a form, such as `engine COMMAND FILE`
            continue
        if name == "manage" and rest:
            _check_manage(*rest)
        elif name == "engine" and rest:
            _check_engine(*rest)
        elif name == "lab" and rest:
            assert rest[0] in LAB_COMMANDS, rest
            assert all((ROOT / word).exists() for word in rest if word.startswith("docs/")), rest
        elif name in {"admit", "estimate"}:
            _check_client(name, *rest)
        elif name == "up":
            source = (ROOT / "launcher" / "cli.py").read_text()
            assert all(f'"{word}"' in source for word in rest if word.startswith("--")), rest


def _check_manage(name: str, *options: str) -> None:
    known = get_commands()
    assert name in known, name
    found = known[name]
    command = load_command_class(found, name) if isinstance(found, str) else found
    if "--help" not in options:
        command.create_parser("manage.py", name).parse_args(list(options))


def _check_engine(name: str, *words: str) -> None:
    options = {
        "format",
        *(["gate"] if name == "admit" else []),
        *record_fields(ENGINE_COMMANDS[name].options),
    }
    for word in words:
        assert not word.startswith("--") or word[2:].replace("-", "_") in options, word
        assert not word.startswith("docs/") or (ROOT / word).exists(), word


def _check_client(name: str, *words: str) -> None:
    """Options exist and have what they need; a command that is named without any is only mentioned."""
    if words:
        client_parser(as_json=False).parse_args([name, *words])


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        found = page.parent / path if path else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, target


@each_page
def test_pages_need_nothing_from_outside_and_name_no_place_of_their_making(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(r"!\[[^\]]*\]\(https?:|<(?:img|script|link|iframe)\b", text)
    assert not re.findall(r"(?<![\w.])/(?:home|root|work|Users)/|\bshared/", text)


@each_page
def test_json_is_json(page: Path) -> None:
    """Answers are shortened by …, which stands for fields, items or the rest of a text."""
    for block in _blocks(page, "json"):
        json.loads(re.sub(r",?\s*…", "", block))


@each_page
def test_variables_exist(page: Path) -> None:
    text = page.read_text()
    known = {variable_of(field.name) for field in fields(Env)} | set(re.findall(r"export (\w+)=", text))
    others = [
        ROOT / "docker-compose.yml",
        ROOT / "sluice",
        *ROOT.glob("tests/*.py"),
        *ROOT.glob("launcher/**/*.py"),
        *ROOT.glob("spark_jobs/**/*.py"),
        *ROOT.glob("agent/*.py"),
        *ROOT.glob("client/*.py"),
    ]
    elsewhere = "".join(path.read_text() for path in others if path != Path(__file__))
    for name in set(re.findall(r"\bSLUICE_[A-Z_]*[A-Z]\b", text)) - known:
        assert name in elsewhere, name


@cache
def _addresses() -> list[re.Pattern[str]]:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    return [re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path))) for path in [*paths, "/api/v1/"]]


@each_page
def test_addresses_of_the_api_exist(page: Path) -> None:
    for path in re.findall(r"/api/v1/[\w/{}$.-]*", page.read_text()):
        assert any(known.fullmatch(path.rstrip(".")) for known in _addresses()), path


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    examples = [path for path in DOCS.glob("examples/**/*") if path.is_file()]
    for page in [*DOCS.glob("*.md"), *DOCS.glob("models/*.md"), *examples]:
        assert page.name == "README.md" or f"({page.relative_to(DOCS)})" in index, page
    records = (DOCS / "adr" / "README.md").read_text()
    assert all(f"({page.name})" in records for page in DOCS.glob("adr/0*.md"))


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_of_the_document_is_described(title: str) -> None:
    described = _first_cells(_section(DOCS / "document.md", title))
    expected = [prefix + field.key for prefix, record in SECTIONS[title] for field in record_fields(record).values()]
    assert sorted(described) == sorted(expected)


def test_the_sections_cover_the_whole_schema() -> None:
    """Tables that need no section of their own are described in the line of the field that holds them."""
    covered = {record for section in SECTIONS.values() for _, record in section}
    within, listed = [reader.DeploymentRecord], set()
    while within:
        record = within.pop()
        listed.add(record)
        within += [field.record for field in record_fields(record).values() if field.record not in (None, *listed)]
    others = listed - covered
    assert others == {
        elements.InputModel,
        elements.Batch,
        elements.EventFields,
        elements.MarginalCost,
        elements.MicroBatchTrigger,
        elements.OperatorCheckpoint,
    }
    line = re.findall(
        r"^\| `(?:model|batches|event_fields|trigger|checkpoint|marginal_cost)` .*$",
        (DOCS / "document.md").read_text(),
        re.MULTILINE,
    )
    assert all(f"`{name}`" in "".join(line) for record in others for name in record_fields(record))


def test_documents_parse() -> None:
    for block in _blocks(DOCS / "document.md", "json document"):
        Deployment.parse(json.loads(block))
    assert _blocks(DOCS / "document.md", "json document")


def test_examples_do_what_the_pages_say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert engine(["estimate", "docs/examples/deployment.json"]) == 0
    query = json.loads(capsys.readouterr().out)["result"]["queries"]["top-pages"]
    assert (query["state"], query["bottleneck"]["server"]) == ("holds", "n1#0")
    said = json.loads(re.sub(r",?\s*…", "", _blocks(DOCS / "document.md", "json")[0]))["top-pages"]
    assert [said[name] for name in ("flow_s", "mace_s", "under_s")] == pytest.approx(
        [query[name] for name in ("flow_s", "mace_s", "under_s")], abs=0.005
    )
    assert [said[name] for name in ("estimate_s", "low_s", "high_s")] == pytest.approx(
        [query[name] for name in ("estimate_s", "low_s", "high_s")], rel=0.03
    )


def test_the_example_of_admission_is_rejected_with_choices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert engine(["admit", "docs/examples/admit.json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["verdict"] == "reject" and result["choices"]


def test_the_trace_has_the_columns_the_guides_name() -> None:
    with (DOCS / "examples" / "requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["period", "count"] and len(rows) == 10_800
    assert f'"events": {sum(float(row["count"]) for row in rows)}' in (DOCS / "api-guide.md").read_text()


def _fields_of(serializer: Any) -> set[str]:
    return set(serializer().fields)


def test_fields_of_requests_are_those_of_the_code() -> None:
    guide = DOCS / "api-guide.md"
    arrivals = set(_first_cells(_section(guide, "Arrivals"))) - set(GENERATORS) - {"kind"}
    assert arrivals < _fields_of(ArrivalCreateSerializer)
    asked = {name for name in _first_cells(_section(guide, "What else may be asked")) if not name.startswith("…")}
    assert asked == set(record_fields(AdmissionCreate)) - {"cluster", "version"}


def test_parameters_of_generators_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", _section(DOCS / "api-guide.md", "Arrivals"), re.MULTILINE)
    said = {kind: set(re.findall(r"`(\w+)`", text)) for kind, text in rows if kind in GENERATORS}
    assert said == {kind: set(make.__kwdefaults__ or {}) - {"seed"} for kind, make in GENERATORS.items()}


def test_codes_scopes_and_verdicts_are_those_of_the_code() -> None:
    guide = DOCS / "api-guide.md"
    assert _first_cells(_section(guide, "A token")) == ["read", "author", "operate", "ingest", "admit", "admin"]
    assert set(_first_cells(_section(guide, "A token"))) == set(Scope.values)
    source = "".join(path.read_text() for path in ROOT.glob("apps/**/*.py")).replace(
        "verdict_{request.verdict}", "verdict_reject verdict_review"
    )
    codes = re.findall(r"^\| \d+ \| (.*?) \|", _section(guide, "Conventions"), re.MULTILINE)
    for code in re.findall(r"`(\w+)`", " ".join(codes)):
        assert re.search(rf"\b{code}\b", source), code
    told = re.findall(r"^\| ([A-Z][\w ]+) \|", _section(DOCS / "user-guide.md", "How to read a preview"), re.MULTILINE)
    assert told[: len(Verdict)] == list(Verdict.labels)
