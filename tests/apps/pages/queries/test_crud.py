"""Queries are changed and deleted in the browser."""

from __future__ import annotations

from django.test import Client

from apps.queries.models import Query
from apps.queries.services import query_create
from tests.apps.pages.crud import ChangeTests, DeleteTests
from tests.apps.small_cluster import body


class TestQueries(ChangeTests, DeleteTests):
    model = Query
    change_url = "/c/little/queries/{name}/edit/"
    delete_url = "/c/little/queries/{name}/delete/"
    valid = {"name": "draft", "team": "", "statistic": "none", "bound_s": "", "priority": "0", "description": ""}
    changed = {"priority": 2}
    invalid = {"name": "A B"}

    def make(self, browser: Client) -> Query:
        return query_create(cluster=self.cluster, user=None, name="draft", body=body(0.01))
