"""Changes of people and tokens are for admins; those of clusters are for everybody."""

from __future__ import annotations

from typing import Any

import pytest

from apps.accounts.choices import Role
from apps.accounts.services import user_create
from tests.apps.small_cluster import small_cluster


@pytest.mark.django_db
def test_changes_of_people_are_listed_for_admins_alone(api_of: Any) -> None:
    small_cluster()
    user_create(username="newcomer", role=Role.VIEWER, password="a-long-pass-phrase")
    kinds = {
        role: {row["kind"] for row in api_of(role).get("/api/v1/changes").json()["results"]}
        for role in (Role.VIEWER, Role.ADMIN)
    }
    assert kinds[Role.VIEWER] and kinds[Role.ADMIN] > kinds[Role.VIEWER]
