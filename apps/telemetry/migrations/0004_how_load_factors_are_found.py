from django.db import migrations, models


def keep(apps, schema_editor):
    """Load factors that were set stay as they are."""
    for part in apps.get_model("telemetry", "Assignment").objects.all().iterator():
        if part.load_factors:
            part.settings = {"method": "fixed", "load_factors": part.load_factors}
            part.save(update_fields=["settings"])


def back(apps, schema_editor):
    for part in apps.get_model("telemetry", "Assignment").objects.all().iterator():
        part.load_factors = part.settings.get("load_factors", [])
        part.save(update_fields=["load_factors"])


class Migration(migrations.Migration):
    dependencies = [
        ("telemetry", "0003_when_a_plan_was_used"),
    ]

    operations = [
        migrations.AddField(
            model_name="assignment",
            name="settings",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="How its load factors are found; empty: the agent adapts them by itself.",
            ),
        ),
        migrations.RunPython(keep, back),
        migrations.RemoveField(model_name="assignment", name="load_factors"),
    ]
