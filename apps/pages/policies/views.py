"""Policy of a cluster: what is in force, another one tried on last month's decisions, versions and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.admission.policy_previews import PolicyPreview, policy_preview
from apps.core.yaml_texts import read_yaml
from apps.pages.base import ClusterPage, PreviewedFormPage, done
from apps.pages.policies.forms import PolicyTextForm
from apps.policies.models import PolicyVersion
from apps.policies.selectors import policy_of, policy_version_numbered, policy_versions
from apps.policies.services import AppliedPolicy, policy_apply, policy_check, policy_restore
from engine.policies.difference import PolicyDifference, policy_differences
from engine.policies.policy import ClusterPolicy
from engine.policies.rules import EvidenceRules
from engine.records import record_fields

__all__ = ["ClusterPolicyPage", "PolicyRestore", "PolicyVersionPage"]

_LISTED = 50  # versions


@dataclass(frozen=True)
class PolicySummary:
    """A policy as its page shows it."""

    policy: ClusterPolicy

    @cached_property
    def evidence(self) -> list[tuple[str, str, str]]:
        """(kind, what it means, its rule)."""
        fields = record_fields(EvidenceRules)
        return [(name, field.words.help, getattr(self.policy.evidence, name)) for name, field in fields.items()]

    @property
    def text(self) -> str:
        """The policy as YAML, without what is as by default."""
        return policy_text(self.policy)


def policy_text(policy: ClusterPolicy) -> str:
    """A policy as YAML, without what is left empty."""
    return yaml.safe_dump(_filled(policy.to_dict()), sort_keys=False, allow_unicode=True, width=100)


def _filled(value: Any) -> Any:
    """A document without nulls and what is empty."""
    if isinstance(value, Mapping):
        return {key: kept for key, item in value.items() if (kept := _filled(item)) not in (None, [], {})}
    return [_filled(item) for item in value] if isinstance(value, list) else value


class ClusterPolicyPage(PreviewedFormPage):
    """`/c/<slug>/settings/policy/`"""

    template_name = "pages/policies/policy.html"
    scope, write_scope = "read", "admin"
    makes = ("apply",)

    def form(self, data: Any = None) -> PolicyTextForm:
        facts = PolicySummary(policy_of(self.cluster))
        return PolicyTextForm(data, initial={"text": facts.text, "base": self.cluster.policy_version})

    def names(self, form: PolicyTextForm) -> dict[str, str]:
        return {"": "text", "base": "note"}

    def preview(self, form: PolicyTextForm) -> dict[str, object]:
        document = read_yaml(form.cleaned_data["text"], "text")
        policy = policy_check(cluster=self.cluster, document=document)
        return {
            "preview": policy_preview(cluster=self.cluster, document=document),
            "differences": policy_differences(policy_of(self.cluster), policy),
        }

    def make(self, form: PolicyTextForm) -> AppliedPolicy:
        asked = form.cleaned_data
        return policy_apply(
            cluster=self.cluster,
            document=read_yaml(asked["text"], "text"),
            user=signed_in_user(self.request),
            note=asked["note"],
            base=asked["base"],
        )

    def made(self, result: AppliedPolicy) -> HttpResponse:
        if not result.is_new:
            return done(self.request, "It says the same as the policy in force.", "pages:policy", self.slug)
        text = f"Version {self.cluster.policy_version} of the policy is in force."
        return done(self.request, text, "pages:policy", self.slug)

    def answer(
        self,
        form: PolicyTextForm,
        status: int = 200,
        preview: PolicyPreview | None = None,
        differences: tuple[PolicyDifference, ...] = (),
    ) -> HttpResponse:
        versions = policy_versions(self.cluster)
        context = {
            "form": form,
            "facts": PolicySummary(policy_of(self.cluster)),
            "versions": versions[:_LISTED],
            "version_count": versions.count(),
            "preview": preview,
            "differences": differences,
        }
        return self.page(context, status)


class PolicyVersionPage(ClusterPage):
    """`/c/<slug>/settings/policy/<number>/`: a version, and how it differs from the one before and the one in force."""

    template_name = "pages/policies/version.html"

    def get(self, request: HttpRequest, slug: str, number: int) -> HttpResponse:
        version = policy_version_numbered(self.cluster, number)
        older = policy_versions(self.cluster).filter(number__lt=number).first()
        before = older.policy if older is not None else ClusterPolicy()
        return self.page({
            "version": version,
            "before": older,
            "changed": policy_differences(before, version.policy),
            "to_present": policy_differences(version.policy, policy_of(self.cluster)),
            "text": policy_text(version.policy),
        })  # fmt: skip


class PolicyRestore(ClusterPage):
    """POST `…/settings/policy/<number>/restore/`: put an older version into force again."""

    http_method_names = ["post"]
    scope = write_scope = "admin"

    def post(self, request: HttpRequest, slug: str, number: int) -> HttpResponse:
        note = request.POST.get("reason", "").strip()
        result = policy_restore(cluster=self.cluster, number=number, user=signed_in_user(request), note=note)
        version: PolicyVersion | None = result.version
        text = f"Version {version.number} says again what version {number} said." if version and result.is_new else ""
        return done(request, text or f"Version {number} says what is in force already.", "pages:policy", slug)
