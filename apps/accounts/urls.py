from django.urls import path

from apps.accounts.views import LoginView, LogoutView, PasswordView, SettingsView, TokenRevokeView, TokensView

app_name = "accounts"
urlpatterns = [
    path("login/", LoginView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),  # POST only
    path("settings/", SettingsView.as_view(), name="settings"),
    path("settings/password/", PasswordView.as_view(), name="password"),
    path("settings/tokens/", TokensView.as_view(), name="tokens"),
    path("settings/tokens/<int:pk>/revoke/", TokenRevokeView.as_view(), name="token-revoke"),
]
