import django.utils.timezone
from django.db import migrations, models


def keep_cut(apps, editor):
    """The chain begins where retention has left it."""
    change, mark = apps.get_model("ledger", "ObjectChange"), apps.get_model("ledger", "LedgerMark")
    first = change.objects.filter(number__isnull=False).order_by("number").first()
    if first is not None and first.number > 1:
        mark.objects.create(name="cut", number=first.number - 1, hash=first.prev_hash)


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="LedgerMark",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("number", models.BigIntegerField()),
                ("hash", models.CharField(max_length=64)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
        migrations.RunPython(keep_cut, migrations.RunPython.noop),
    ]
