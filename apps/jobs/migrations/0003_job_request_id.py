from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0002_job_traceparent'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='request_id',
            field=models.CharField(blank=True, max_length=64),
        ),
    ]
