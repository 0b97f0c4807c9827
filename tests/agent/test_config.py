"""The configuration and the agent's file: strict, with all faults at once."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from agent.config import AgentConfig
from agent.settings import AgentSettings
from engine.dataflow import Pipeline
from engine.dataflow.templates import TEMPLATES
from engine.errors import DocumentError
from engine.jarvis.settings import AdaptationSettings as JarvisSettings

MADE = TEMPLATES["s2s-probe"]("probes").document
PLAN = Pipeline.parse(MADE).digest
BY_HAND = {"method": "fixed", "load_factors": [1, 0.5]}
GOOD: dict[str, Any] = {
    "version": 7,
    "agent": "5f9c1b1e-0000-4000-8000-000000000001",
    "cluster": "eu-1",
    "sources": {
        "probes": {
            "kind": "tcp_probe",
            "options": {"listen": "127.0.0.1:9000", "peers": [{"address": "127.0.0.1:9001", "name": "b"}]},
            "time": "ts",
            "columns": MADE["source"]["columns"],
        }
    },
    "queries": [{"query": "eu-1/s2s", "version": 3, "plan": PLAN, "pipeline": MADE, "settings": BY_HAND}],
    "relay": None,
    "parent": None,
}


def changed(**parts: Any) -> dict[str, Any]:
    return copy.deepcopy(GOOD) | parts


def faults_of(document: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        AgentConfig.parse(document)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_defaults_and_given_values_are_parsed() -> None:
    config = AgentConfig.parse(GOOD)
    assert (config.version, config.epoch_s, config.sub_epochs, config.batch_records) == (7, 1.0, 10, 1000)
    assert config.sources["probes"].lateness_s == 1.0
    assert config.queries[0].pipeline.digest == PLAN
    assert config.queries[0].settings == JarvisSettings(method="fixed", load_factors=(1, 0.5))
    assert (config.queries[0].refined, config.checkpoint_share) == (None, 0.1)
    assert config.relay is None


def test_all_faults_at_once_each_with_its_path() -> None:
    document = changed(epoch_s=0, budget_cores="all", surplus=1)
    document["sources"]["probes"]["options"] = {"interval_s": -1, "peers": [{"address": "nowhere"}]}
    document["sources"]["probes"]["columns"] = {"ts": "string", "colour": "string"}
    document["queries"] += [document["queries"][0] | {"plan": "0" * 64}]
    document["queries"][0] = document["queries"][0] | {"settings": {"margin": 0.5, "load_factors": [2]}}
    faults = faults_of(document)
    assert set(faults) >= {
        "epoch_s",
        "budget_cores",
        "surplus",
        "sources.probes.options.interval_s",
        "sources.probes.options.peers[0].address",
        "queries[0].settings.load_factors[0]",
        "queries[0].settings.margin",
        "queries[1].plan",
    }
    assert faults["epoch_s"] == "epoch_s is 0; allowed: a finite number from 0.05 to 60"


def test_unknown_column_is_a_fault() -> None:
    document = changed()
    columns = document["sources"]["probes"]["columns"] = {**MADE["source"]["columns"], "colour": "string"}
    assert "tcp_probe makes no colour" in faults_of(document)["sources.probes.columns.colour"]
    del columns["colour"]
    columns["rtt_us"] = "string"
    assert faults_of(document)["sources.probes.columns.rtt_us"] == "rtt_us is string; allowed: int64"


def test_a_query_reads_what_its_source_has() -> None:
    document = changed()
    source = document["sources"].pop("probes")
    assert faults_of(document)["queries[0].pipeline.source.id"] == "id is 'probes'; allowed: none is configured"
    document["sources"]["probes"] = source | {"columns": {"ts": "timestamp", "src_ip": "string"}}
    assert "queries[0].pipeline.source.columns.rtt_us" in faults_of(document)


def test_a_query_that_joins_another_stream_reads_what_that_source_has() -> None:
    columns = {"ts": "timestamp", "src_ip": "string", "err_code": "int64", "unused": "string"}
    pairs = {"on": {"src_ip": "src_ip"}, "take": {"other": "err_code"}}
    join = {"op": "join", "stream": "others", "time": "ts", "columns": columns, **pairs}
    made = copy.deepcopy(MADE)
    made["operators"].insert(1, {"id": "match", "expression": join})
    document = changed()
    document["queries"][0] |= {"pipeline": made, "plan": Pipeline.parse(made).digest}
    document["queries"][0]["settings"]["load_factors"] = [1]
    path = "queries[0].pipeline.operators[1].expression"
    assert faults_of(document) == {f"{path}.stream": "stream is 'others'; allowed: probes"}
    others = document["sources"]["others"] = copy.deepcopy(document["sources"]["probes"])
    assert AgentConfig.parse(document).queries[0].pipeline.streams == ("probes", "others")
    del others["columns"]["err_code"]
    assert list(faults_of(document)) == [f"{path}.columns.err_code"]


def test_a_pipelines_faults_stand_under_its_path() -> None:
    document = changed()
    document["queries"][0]["pipeline"] = {"source": {"id": "probes"}, "operators": []}
    assert any(path.startswith("queries[0].pipeline.") for path in faults_of(document))


def test_a_query_without_settings_adapts_by_itself_and_what_was_learned_is_not_judged_here() -> None:
    document = changed()
    del document["queries"][0]["settings"]
    document["queries"][0]["refined"] = {"schema": "torn"}
    query = AgentConfig.parse(document).queries[0]
    assert query.settings.method == "scalar"
    assert query.refined == {"schema": "torn"}
    document["queries"][0]["load_factors"] = [1, 1]
    assert "is not a field of a query" in faults_of(document)["queries[0].load_factors"]


@pytest.mark.parametrize("settings", ["fast", {"load_factors": 1}, {"methods": "scalar"}, {"method": "slow"}])
def test_settings_with_faults_refuse_the_configuration(settings: Any) -> None:
    document = changed()
    document["queries"][0]["settings"] = settings
    (path,) = faults_of(document)
    assert path.startswith("queries[0].settings")


def test_too_many_load_factors_and_the_same_query_twice() -> None:
    document = changed()
    by_hand = {"settings": {"method": "fixed", "load_factors": [1, 1, 1, 1]}}
    document["queries"] = [document["queries"][0] | by_hand]
    faults = faults_of(document)
    assert faults["queries[0].settings.load_factors"].startswith("load_factors has 4 items; allowed: at most 3")
    twice = faults_of(changed(queries=[GOOD["queries"][0], GOOD["queries"][0]]))
    assert "which another has" in twice["queries[1].query"]


def test_a_generated_column_has_one_way_to_be_made() -> None:
    columns = {"ts": "timestamp", "n": "int64", "m": "int64"}
    options = {"rate_per_s": 10, "columns": {"n": {"uniform": [1, 2], "constant": 1}}}
    source = {"kind": "generator", "options": options, "time": "ts", "columns": columns}
    faults = faults_of(changed(sources={"probes": source}, queries=[]))
    assert "exactly one of" in faults["sources.probes.options.columns.n"]
    options["columns"] = {"n": {"uniform": [1, 2]}}
    faults = faults_of(changed(sources={"probes": source}, queries=[]))
    assert "m is missing" in faults["sources.probes.options.columns.m"]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"path": "/var/log/x", "time_pattern": "["}, "time_pattern"),
        ({"path": "/var/log/x", "time_pattern": "time"}, "time_pattern"),
        ({"path": "/var/log/x", "encoding": "utf-16"}, "encoding"),
        ({"path": "/var/log/x", "encoding": "klingon"}, "encoding"),
        ({}, "path"),
    ],
)
def test_options_of_log_files_are_checked_before_anything_runs(options: dict[str, Any], path: str) -> None:
    source = {"kind": "log_file", "options": options, "time": "ts", "columns": {"ts": "timestamp", "line": "string"}}
    assert f"sources.logs.options.{path}" in faults_of(changed(sources={"logs": source}, queries=[]))


def test_a_replay_without_times_needs_a_rate() -> None:
    source = {"kind": "replay", "options": {"path": "x.csv"}, "time": "ts", "columns": {"ts": "timestamp"}}
    assert "rate_per_s" in faults_of(changed(sources={"r": source}, queries=[]))["sources.r.options.time_column"]


def test_a_relay_collects_nothing_itself() -> None:
    child = {"agent": "a", "secret_hash": "0" * 64}
    relay = {"listen": "127.0.0.1:9100", "children": [child], "pipelines": {PLAN: MADE}}
    assert set(faults_of(changed(relay=relay))) == {"sources", "queries"}
    config = AgentConfig.parse(changed(relay=relay, sources={}, queries=[]))
    assert config.relay is not None
    assert config.relay.listen == ("127.0.0.1", 9100)
    assert config.relay.pipelines[PLAN].digest == PLAN
    assert "relay.pipelines" in next(
        iter(faults_of(changed(relay=relay | {"pipelines": {"1" * 64: MADE}}, queries=[])))
    )


def test_agent_file_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('url = "http://127.0.0.1:8000/"\ntoken_file = "token"\nname = "web-1"\n')
    settings = AgentSettings.load(path)
    assert (settings.url, settings.name) == ("http://127.0.0.1:8000", "web-1")
    assert settings.state_dir == tmp_path
    assert settings.token_file == tmp_path / "token"
    assert settings.read_from == (Path("/var/log"),)
    assert settings.own == (tmp_path, tmp_path / "token", path)
    monkeypatch.setenv("SLUICE_URL", "http://127.0.0.1:9999")
    assert AgentSettings.load(path).url == "http://127.0.0.1:9999"


def test_agent_file_reports_all_faults(tmp_path: Path) -> None:
    def faults(text: str) -> dict[str, str]:
        path = tmp_path / "agent.toml"
        path.write_text(text)
        with pytest.raises(DocumentError) as caught:
            AgentSettings.load(path)
        return {fault.path: fault.message for fault in caught.value.faults}

    assert set(faults('url = "ftp://x"\nname = "Über"\ncolour = 1')) == {"url", "name", "colour"}
    assert set(faults('url = "http://x"\nread_from = "/var/log"')) == {"read_from"}
    assert set(faults('url = "http://x"\nread_from = ["/var/log", 1, ""]')) == {"read_from[1]", "read_from[2]"}
    assert "console's address" in faults('name = "web-1"')["url"]
    assert "is no TOML" in faults("url = ")[""]
    assert set(faults('url = "http://x"\nsecret = "s"')) == {"agent"}
    assert "No such file" in faults('url = "https://x"\nca_file = "none.pem"')["ca_file"]
    assert set(faults('url = "http://x"\n[local]\nconfig = "a"\nframes = "-"')) == {"url"}
    with pytest.raises(DocumentError, match="No such file"):
        AgentSettings.load(tmp_path / "none.toml")


@pytest.mark.parametrize(("curve", "path"), [([[None, 1]], "curve[0][0]"), ([[0]], "curve[0]"), ([0], "curve[0]")])
def test_damaged_curve_is_a_fault(curve: Any, path: str) -> None:
    options = {"rate_per_s": 10, "curve": curve, "columns": {}}
    source = {"kind": "generator", "options": options, "time": "ts", "columns": {"ts": "timestamp"}}
    assert list(faults_of(changed(sources={"load": source}, queries=[]))) == [f"sources.load.options.{path}"]
