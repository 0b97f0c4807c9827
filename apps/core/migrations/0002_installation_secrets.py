from django.conf import settings
from django.db import migrations, models

from apps.core.secrets import seal_secret


def keep_root(apps, editor):
    """What messages to webhooks were signed with before was derived from the signing key of now."""
    secret = apps.get_model("core", "InstallationSecret")
    secret.objects.create(name="webhooks", sealed=seal_secret(settings.SECRET_KEY, "installation"))


class Migration(migrations.Migration):
    dependencies = [
        ("core", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="InstallationSecret",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("sealed", models.TextField()),
            ],
        ),
        migrations.RunPython(keep_root, migrations.RunPython.noop),
    ]
