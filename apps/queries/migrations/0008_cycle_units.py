"""Units of the costs of inputs: nominal, until the migration of connections marks those of engines."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0007_window_ends")]

    operations = [
        migrations.AddField(
            "operatorinput",
            "cycle_unit",
            models.CharField(
                choices=[
                    ("nominal", "Nominal cycles"),
                    ("calibrated", "Calibrated cycles"),
                    ("cpu_ns", "Nanoseconds of CPU"),
                ],
                default="nominal",
                help_text="What its cycles count: cycles of a clock, or nanoseconds of CPU.",
                max_length=10,
            ),
        ),
    ]
