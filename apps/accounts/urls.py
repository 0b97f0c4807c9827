from django.urls import path

from apps.accounts.views import PasswordView, SettingsView, TokenRevokeView, TokensView

app_name = "accounts"
urlpatterns = [
    path("settings/", SettingsView.as_view(), name="settings"),
    path("settings/password/", PasswordView.as_view(), name="password"),
    path("settings/tokens/", TokensView.as_view(), name="tokens"),
    path("settings/tokens/<int:pk>/revoke/", TokenRevokeView.as_view(), name="token-revoke"),
]
