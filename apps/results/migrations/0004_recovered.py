from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('results', '0003_notices'),
    ]

    operations = [
        migrations.AddField(
            model_name='resultwindow',
            name='recovered',
            field=models.JSONField(default=dict, help_text='{agent: records taken from what it left behind}.'),
        ),
    ]
