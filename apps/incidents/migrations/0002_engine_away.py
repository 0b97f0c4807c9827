from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('incidents', '0001_initial'),
    ]

    operations = [
        migrations.AlterField(
            model_name='incident',
            name='cause_kind',
            field=models.CharField(choices=[('stream_away', 'Stream processor does not run'), ('stream_behind', 'Stream processor is behind'), ('agent_silent', 'Agent does not report'), ('frames_waiting', 'Frames wait'), ('agent_starved', 'Agent is starved'), ('source_silent', 'Source is silent'), ('watermark_held', 'Watermark is held back'), ('node_busy', 'Node is busy'), ('main_wait', 'Wait beside the queues'), ('engine_away', 'Engine is away'), ('unexplained', 'Not explained')], max_length=16),
        ),
        migrations.AlterField(
            model_name='incident',
            name='cause_subject',
            field=models.CharField(blank=True, help_text='The agent, source, node or connection; where nothing explains it, the query.', max_length=140),
        ),
    ]
