"""Pools of connected engines, their nodes and the costs that were counted there are in nanoseconds of CPU."""

from typing import Any

from django.db import migrations


def mark_nanoseconds(apps: Any, schema_editor: Any) -> None:
    pools, nodes = apps.get_model("fleet", "NodePool").objects, apps.get_model("fleet", "Node").objects
    inputs = apps.get_model("queries", "OperatorInput").objects
    clusters = set()
    for connection in apps.get_model("connections", "Connection").objects.all():
        name = f"{connection.engine}-{connection.name}"[:64].rstrip("-._")
        for pool in pools.filter(cluster=connection.cluster_id, name=name, capacity_cps=1e9):
            pools.filter(pk=pool.pk).update(cycle_unit="cpu_ns")
            nodes.filter(pool=pool.pk).update(cycle_unit="cpu_ns")
            clusters.add(connection.cluster_id)
    jobs = apps.get_model("connections", "ImportedJob").objects.values_list("query_id", flat=True)
    inputs.filter(operator__version__query__in=list(jobs)).update(cycle_unit="cpu_ns")
    placed = apps.get_model("queries", "Placement").objects.filter(node__cycle_unit="cpu_ns")
    versions = list(placed.values_list("operator__version", flat=True).distinct())
    inputs.filter(operator__version__in=versions).update(cycle_unit="cpu_ns")
    # Where every node is an engine's, costs could be meant in its unit only.
    for cluster in clusters:
        if not nodes.filter(cluster=cluster).exclude(cycle_unit="cpu_ns").exists():
            inputs.filter(operator__version__query__cluster=cluster).update(cycle_unit="cpu_ns")


class Migration(migrations.Migration):
    dependencies = [
        ("connections", "0004_operators"),
        ("fleet", "0008_cycle_units"),
        ("queries", "0008_cycle_units"),
    ]

    operations = [migrations.RunPython(mark_nanoseconds, migrations.RunPython.noop)]
