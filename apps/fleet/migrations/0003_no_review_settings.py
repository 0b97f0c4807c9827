from django.db import migrations


class Migration(migrations.Migration):
    """What a person decides on is a part of the policy, which has taken over the values."""

    dependencies = [
        ('fleet', '0002_policy_version'),
        ('policies', '0001_initial'),
    ]

    operations = [
        migrations.RemoveField(model_name='cluster', name=name)
        for name in ('review_at_risk', 'review_assumed', 'review_coarse', 'review_untrusted', 'thin_below')
    ]
