from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='cluster',
            name='policy_version',
            field=models.PositiveIntegerField(default=0, editable=False),
        ),
    ]
