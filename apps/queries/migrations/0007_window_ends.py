"""Latency of executable queries counts from a window's end, as it is measured; their windows say so now."""

from django.db import migrations


def say_from_window_end(apps, schema_editor):
    """Executable operators that keep a window: stored before a window could say what its latency counts from."""
    operators = apps.get_model("queries", "Operator").objects.using(schema_editor.connection.alias)
    for operator in operators.filter(extra__has_key="window").iterator():
        window = operator.extra.get("window")
        if window and operator.extra.get("expression"):
            operator.extra["window"] = {"measured_from": "window_end", **window}
            operator.save(update_fields=["extra"])


class Migration(migrations.Migration):
    dependencies = [("queries", "0006_cost_noise")]

    operations = [migrations.RunPython(say_from_window_end, migrations.RunPython.noop)]
