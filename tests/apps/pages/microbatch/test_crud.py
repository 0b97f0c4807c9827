"""Spark queries are changed and deleted in the browser."""

from __future__ import annotations

from django.test import Client

from apps.microbatch.models import SparkQuery
from apps.microbatch.services import spark_query_create
from tests.apps.pages.crud import ChangeTests, DeleteTests


class TestSparkQueries(ChangeTests, DeleteTests):
    model = SparkQuery
    change_url = "/c/little/provisioning/spark/{pk}/edit/"
    delete_url = "/c/little/provisioning/spark/{pk}/delete/"
    valid = {"name": "orders", "statistic": "mean", "trigger_s": "5", "executors": "2"}
    changed = {"name": "orders-by-region", "executors": 3}
    invalid = {"executors": "0"}

    def make(self, browser: Client) -> SparkQuery:
        return spark_query_create(cluster=self.cluster, name="orders", origin="listener", trigger_s=5.0, executors=2)
