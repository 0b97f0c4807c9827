"""Units of cycles of pools and nodes. What a node was calibrated to is in calibrated cycles; the rest are nominal."""

from typing import Any

import django.core.validators
from django.db import migrations, models

_UNIT = {
    "choices": [
        ("nominal", "Nominal cycles"),
        ("calibrated", "Calibrated cycles"),
        ("cpu_ns", "Nanoseconds of CPU"),
    ],
    "default": "nominal",
    "help_text": "What the capacity counts: cycles of a clock, or nanoseconds of CPU.",
    "max_length": 10,
}
_FACTOR = {
    "blank": True,
    "help_text": "Cycles of a clock that a core does in a nanosecond of CPU; empty: not known.",
    "null": True,
    "validators": [
        django.core.validators.MinValueValidator(0.001),
        django.core.validators.MaxValueValidator(1000),
    ],
}


def mark_calibrated(apps: Any, schema_editor: Any) -> None:
    nodes = apps.get_model("fleet", "Node").objects.filter(evidence="measured", calibrated_at__isnull=False)
    nodes.update(cycle_unit="calibrated")


class Migration(migrations.Migration):
    dependencies = [("fleet", "0007_node_memory")]

    operations = [
        migrations.AddField("nodepool", "cycle_unit", models.CharField(**_UNIT)),
        migrations.AddField("nodepool", "cycles_per_ns", models.FloatField(**_FACTOR)),
        migrations.AddField("node", "cycle_unit", models.CharField(**_UNIT)),
        migrations.AddField("node", "cycles_per_ns", models.FloatField(**_FACTOR)),
        migrations.RunPython(mark_calibrated, migrations.RunPython.noop),
    ]
