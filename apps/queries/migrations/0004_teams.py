import django.db.models.deletion
from django.db import migrations, models


def make_teams(apps, editor):
    """Each text that named a team becomes a team; texts that differ in spaces around them alone are one."""
    query, team = apps.get_model("queries", "Query"), apps.get_model("accounts", "Team")
    for text in query.objects.exclude(team_text="").order_by("team_text").values_list("team_text", flat=True).distinct():
        if name := text.strip():
            owner, _ = team.objects.get_or_create(name=name)
            query.objects.filter(team_text=text).update(team=owner)
    if editor.connection.vendor == "postgresql":  # else the table has checks to come, and no column can go
        editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0003_grants'),
        ('queries', '0003_started_without_delay'),
    ]

    operations = [
        migrations.RenameField(model_name='query', old_name='team', new_name='team_text'),
        migrations.AddField(
            model_name='query',
            name='team',
            field=models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='queries', to='accounts.team'
            ),
        ),
        migrations.RunPython(make_teams, migrations.RunPython.noop),
        migrations.RemoveField(model_name='query', name='team_text'),
    ]
