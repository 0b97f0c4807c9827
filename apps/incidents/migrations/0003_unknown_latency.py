from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('incidents', '0002_engine_away'),
    ]

    operations = [
        migrations.AlterField(
            model_name='incidentquery',
            name='state',
            field=models.CharField(choices=[('holds', 'Holds'), ('at_risk', 'At risk'), ('breached', 'Breached'), ('unknown', 'Latency unknown'), ('none', 'No objective')], help_text='The worst while it took part.', max_length=10),
        ),
    ]
