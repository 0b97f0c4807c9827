import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0006_kubernetes'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='memory_bytes',
            field=models.BigIntegerField(blank=True, help_text='Empty: that of its pool.', null=True, validators=[django.core.validators.MinValueValidator(1)]),
        ),
    ]
