from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('estimates', '0006_simulated_runs'),
    ]

    operations = [
        migrations.AddField(
            model_name='queryestimate',
            name='certainty',
            field=models.CharField(choices=[('known', 'Known'), ('unknown', 'Unknown'), ('never_catches_up', 'Never catches up')], default='known', max_length=16),
        ),
        migrations.AlterField(
            model_name='objectivestatus',
            name='state',
            field=models.CharField(choices=[('holds', 'Holds'), ('at_risk', 'At risk'), ('breached', 'Breached'), ('unknown', 'Latency unknown'), ('none', 'No objective')], max_length=10),
        ),
        migrations.AlterField(
            model_name='queryestimate',
            name='state',
            field=models.CharField(choices=[('holds', 'Holds'), ('at_risk', 'At risk'), ('breached', 'Breached'), ('unknown', 'Latency unknown'), ('none', 'No objective')], max_length=10),
        ),
    ]
