
import django.db.models.deletion
import django.db.models.functions.comparison
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


def give_roles(apps, editor):
    """The role of each person becomes their grant on everything."""
    user, grant = apps.get_model("accounts", "User"), apps.get_model("accounts", "Grant")
    people = user.objects.values_list("pk", "role", "is_superuser")
    grant.objects.bulk_create(grant(user_id=key, role="admin" if is_super else role) for key, role, is_super in people)
    if editor.connection.vendor == "postgresql":  # else the table has checks to come, and no column can go
        editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_ledger'),
        ('fleet', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Team',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80, unique=True)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Group',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('members', models.ManyToManyField(blank=True, related_name='memberships', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Grant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('role', models.CharField(max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('cluster', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='fleet.cluster')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to=settings.AUTH_USER_MODEL)),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='accounts.group')),
                ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='accounts.team')),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.CheckConstraint(condition=models.Q(('user__isnull', True), ('group__isnull', True), _connector='XOR'), name='grant_has_one_holder'), models.CheckConstraint(condition=models.Q(('cluster__isnull', True), ('team__isnull', True), _connector='OR'), name='grant_has_one_place'), models.UniqueConstraint(django.db.models.functions.comparison.Coalesce('user', 0), django.db.models.functions.comparison.Coalesce('group', 0), django.db.models.functions.comparison.Coalesce('cluster', 0), django.db.models.functions.comparison.Coalesce('team', 0), name='one_role_per_holder_and_place')],
            },
        ),
        migrations.RunPython(give_roles, migrations.RunPython.noop),
        migrations.RemoveField(
            model_name='user',
            name='role',
        ),
    ]
