from django.apps import AppConfig


class KubernetesConfig(AppConfig):
    name = "apps.kubernetes"
    label = "kubernetes"
    verbose_name = "Kubernetes"
