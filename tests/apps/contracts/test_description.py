"""The API's description: ids, summaries, scopes, errors and examples of every operation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from drf_spectacular.generators import SchemaGenerator

from apps.accounts.choices import SCOPE_TEXTS, Scope
from apps.core.problem_details import PROBLEM_JSON
from console.openapi import EXAMPLES, TAGS
from tests.apps.contracts.endpoints import ENDPOINTS
from tests.apps.contracts.test_endpoints import address, client_of
from tests.golden import GoldenRecord

pytestmark = pytest.mark.django_db

OPENAPI = GoldenRecord(Path(__file__).with_name("golden"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    described: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return described


@pytest.fixture(scope="module")
def operations(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return list(_operations(schema))


def _operations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield {**operation, "path": path, "method": method.upper()}


def test_every_operation_has_a_readable_id_of_its_own(operations: list[dict[str, Any]]) -> None:
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names) == sum(len(row.methods) for row in ENDPOINTS.values())
    assert [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z0-9]*)+", name)] == []
    assert {"listQueries", "getQuery", "previewAdmission", "applyAdmission", "createPlacement"} <= set(names)


def test_every_operation_has_summary_description_tag_and_problem(operations: list[dict[str, Any]]) -> None:
    tags = {tag["name"] for tag in TAGS}
    for operation in operations:
        name = operation["operationId"]
        assert 5 < len(operation["summary"]) < 120 and not operation["summary"].endswith("."), name
        assert operation["description"], name
        assert set(operation["tags"]) <= tags, name
        assert set(operation["responses"]["default"]["content"]) == {PROBLEM_JSON}, name


def test_scopes_of_the_description_are_those_that_are_asked_for(operations: list[dict[str, Any]]) -> None:
    assert set(SCOPE_TEXTS) == set(Scope)
    told: dict[str, int] = {}
    for operation in operations:
        for scope in [scope for one in operation.get("security", ()) for scope in one.get("token", ())]:
            told[scope] = told.get(scope, 0) + 1
            assert f"Scope: `{scope}`." in operation["description"]
    asked: dict[str, int] = {}
    for row in ENDPOINTS.values():
        for scope in row.methods.values() if not row.other_sign_in else ():
            asked[scope] = asked.get(scope, 0) + 1
    assert {scope: told[scope] - asked[scope] for scope in asked} == dict.fromkeys(asked, 0) | {"read": 1}, (
        "an agent's configuration is read by agents and by people"
    )


def test_component_has_what_generators_take(schema: dict[str, Any]) -> None:
    """A name each, and used; enumerations of one type; defaults that fit: else a generated client lacks operations."""
    components = schema["components"]["schemas"]
    used = {reference.rpartition("/")[2] for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(schema))}
    assert set(components) == used
    names = [(inner.get("title") or name).lower() for name, inner in components.items()]
    assert [name for name in set(names) if names.count(name) > 1] == []
    for name, inner in components.items():
        fields = inner.get("properties", {}) | {"": inner}
        for place, described in [(f"{name}.{field}", fields[field]) for field in fields]:
            assert len({type(value) for value in described.get("enum", [""])}) == 1, place
            if "default" in described:
                wanted = described | {"components": schema["components"]}
                assert list(jsonschema.Draft202012Validator(wanted).iter_errors(described["default"])) == [], place


def test_examples_fit_their_operations(schema: dict[str, Any], operations: list[dict[str, Any]]) -> None:
    by_id = {operation["operationId"]: operation for operation in operations}
    assert set(EXAMPLES) <= set(by_id)
    for name, example in EXAMPLES.items():
        operation = by_id[name]
        parts = [(operation.get("requestBody"), example.request)]
        parts += [(operation["responses"].get(example.status), example.response)]
        for body, value in parts:
            if value is not None:
                content = body["content"]["application/json"]
                assert content["example"] == value
                jsonschema.validate(value, {**content["schema"], "components": schema["components"]})


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if "cluster" in (example.request or {})])
def test_example_is_taken_up_to_the_cluster_in_it(
    name: str, world: dict[str, Any], operations: list[dict[str, Any]]
) -> None:
    """Sent to a console without that cluster, it is refused for its name alone."""
    operation = next(one for one in operations if one["operationId"] == name)
    body = json.dumps(EXAMPLES[name].request)
    answer = client_of("admin").generic(operation["method"], operation["path"], body, content_type="application/json")
    assert answer.status_code in {400, 404}
    assert "cluster" in answer.json()["detail"] and len(answer.json()["faults"]) <= 1, answer.json()


@pytest.mark.parametrize("name", [name for name, row in ENDPOINTS.items() if "GET" in row.methods])
def test_answer_is_as_described(
    name: str, world: dict[str, Any], schema: dict[str, Any], operations: list[dict[str, Any]]
) -> None:
    """A generated client relies on it: types, members that are always there, and those that may be null."""
    path = address(name, world)
    fitting = [one for one in operations if one["method"] == "GET" and _leads_to(one["path"], path)]
    operation = min(fitting, key=lambda one: one["path"].count("{"))  # accuracy/summary fits accuracy/{id}, too
    content = operation["responses"]["200"].get("content", {}).get("application/json")
    answer = client_of("admin").get(path)
    if content is None or answer.status_code != 200:
        pytest.skip("a file, or something this world does not have")
    jsonschema.validate(answer.json(), {**content["schema"], "components": schema["components"]})


def _leads_to(template: str, path: str) -> bool:
    pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
    return re.fullmatch(pattern, path.partition("?")[0]) is not None


def test_description_is_as_recorded(schema: dict[str, Any], operations: list[dict[str, Any]]) -> None:
    """RECORD_GOLDEN=1 writes the record anew; it changes on purpose.

    Operations stand with their schemas in place, so that a schema's new name shows as that alone.
    """
    schemas = schema["components"]["schemas"]
    rest = {key: value for key, value in schema.items() if key not in {"paths", "components"}}
    rest |= {key: value for key, value in schema["components"].items() if key != "schemas"}
    answers = {"names of schemas": sorted(schemas), "beside operations": [json.dumps(rest)]}
    for operation in operations:
        answers[f"{operation['method']} {operation['path']}"] = [json.dumps(_resolved(operation, schemas, ()))]
    OPENAPI.check("openapi", answers)


def _resolved(value: Any, schemas: dict[str, Any], above: tuple[str, ...]) -> Any:
    """With schemas in place of references to them, but for one within itself: there stands how far up it is."""
    if isinstance(value, list):
        return [_resolved(item, schemas, above) for item in value]
    if not isinstance(value, dict):
        return value
    if (reference := value.get("$ref")) is None:
        return {key: _resolved(item, schemas, above) for key, item in value.items()}
    name = reference.rpartition("/")[2]
    if name in above:
        return {"$ref": above[::-1].index(name)}
    return _resolved(schemas[name], schemas, (*above, name)) | {k: v for k, v in value.items() if k != "$ref"}
