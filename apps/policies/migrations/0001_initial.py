import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

_KINDS = ('at_risk', 'assumed', 'coarse', 'untrusted')
_DEFAULTS = {'at_risk': 'review', 'assumed': 'admit', 'coarse': 'review', 'untrusted': 'review'}
_THIN_BELOW = 0.1


def take_over_settings(apps, schema_editor):
    """Make the first version of the policy of each cluster whose settings differ from what holds by default."""
    cluster_model = apps.get_model('fleet', 'Cluster')
    version_model = apps.get_model('policies', 'PolicyVersion')
    for cluster in cluster_model.objects.order_by('pk'):
        rules = {kind: 'review' if getattr(cluster, f'review_{kind}') else 'admit' for kind in _KINDS}
        if rules == _DEFAULTS and cluster.thin_below == _THIN_BELOW:
            continue
        version_model.objects.create(
            cluster=cluster,
            number=1,
            document={'evidence': rules | {'predicted': 'admit'}, 'thin_below': cluster.thin_below},
            note='Settings of the cluster as they were before it had a policy',
        )
        cluster_model.objects.filter(pk=cluster.pk).update(policy_version=1)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('fleet', '0002_policy_version'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('document', models.JSONField()),
                ('teams', models.JSONField(default=dict)),
                ('note', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='policy_versions', to='fleet.cluster')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-number'],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'number'), name='policy_number_once_per_cluster')],
            },
        ),
        migrations.RunPython(take_over_settings, migrations.RunPython.noop),
    ]
