"""``what-if`` of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.deployment import Deployment
from engine.errors import DocumentError, Fault, OptionError
from engine.provisioning.finding import find
from engine.provisioning.placing import PLACES, placed
from engine.provisioning.scenario import applied
from engine.provisioning.what_if import what_if
from engine.wording import show

__all__ = ["command"]

_BESIDE = ("changes", "scenarios")


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """``changes`` or ``scenarios`` beside a deployment document; or a question about it, asked by option `find`.

    With `find`, changes are applied before the question is asked. Options: `place`, `seed`, `mace_every`, `flow`,
    `intervals`, `draws`, `rounds`, `find`, `parameters`.
    """
    if not isinstance(document, Mapping):
        raise DocumentError([Fault("", f"the document is {show(document)}; allowed: an object")])
    if all(name in document for name in _BESIDE):
        raise DocumentError([Fault("scenarios", "scenarios is given beside changes; allowed: one of them")])
    base = {name: value for name, value in document.items() if name not in _BESIDE}
    deployment = Deployment.parse(base, placed=False)
    if "find" in options:
        return _found(deployment, document, options)
    if "parameters" in options:
        raise OptionError("parameters are those of a question; name it with the option find")
    settings = {name: value for name, value in options.items() if name != "place"}
    return {"scenarios": [entry.to_dict() for entry in what_if(deployment, _scenarios(document, options), **settings)]}


def _scenarios(document: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """The scenarios; a bare list of changes is compared with what is now."""
    if "scenarios" not in document:
        changed = {"name": "changed", "changes": document.get("changes", []), "place": options.get("place", "fill")}
        return [{"name": "now"}, changed]
    given = document["scenarios"]
    if "place" not in options or not isinstance(given, list):
        return given
    return [{"place": options["place"]} | item if isinstance(item, dict) else item for item in given]


def _found(deployment: Deployment, document: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    if "scenarios" in document:
        raise DocumentError([Fault("scenarios", "scenarios does not go with find; allowed: changes")])
    changed = applied(deployment, document.get("changes", []))
    every, seed = options.get("mace_every", 1), options.get("seed", 0)
    whole = changed.deployment
    # Sizes place whatever has no place themselves; the other questions are about what runs.
    if options["find"] in ("survival", "growth"):
        whole = placed(whole, options.get("place", PLACES[1]), mace_every=every, seed=seed)
    answer = find(whole, options["find"], options.get("parameters"), seed=seed, mace_every=every)
    return {"find": options["find"], "words": list(changed.words), "answer": answer}
