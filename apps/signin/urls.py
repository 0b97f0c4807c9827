from django.urls import path

from apps.signin import views

app_name = "signin"
urlpatterns = [
    path("login/", views.LoginView.as_view(), name="login"),
    path("login/code/", views.CodeView.as_view(), name="code"),
    path("login/provider/", views.ProviderView.as_view(), name="provider"),
    path("login/provider/answer/", views.ProviderAnswerView.as_view(), name="provider-answer"),
    path("login/provider/logout/", views.ProviderLogoutView.as_view(), name="provider-logout"),  # asked by the provider
    path("login/link/", views.LinkView.as_view(), name="link"),
    path("login/forgotten/", views.ResetRequestView.as_view(), name="forgotten"),
    path("login/reset/<str:token>/", views.ResetView.as_view(), name="reset"),
    path("invitation/<str:token>/", views.InvitationView.as_view(), name="invitation"),
    path("logout/", views.LogoutView.as_view(), name="logout"),  # POST only
    path("settings/sign-in/", views.SignInPage.as_view(), name="settings"),
    path("settings/sign-in/sessions/end/", views.SessionsEnd.as_view(), name="sessions-end"),
    path("settings/sign-in/sessions/<str:session_id>/end/", views.SessionEnd.as_view(), name="session-end"),
    path("settings/sign-in/unlink/", views.Unlink.as_view(), name="unlink"),
    path("settings/second-factor/", views.SecondFactorView.as_view(), name="second-factor"),
    path("settings/second-factor/remove/", views.SecondFactorRemove.as_view(), name="second-factor-remove"),
    path("settings/second-factor/codes/", views.RecoveryCodesView.as_view(), name="recovery-codes"),
    path("settings/service-accounts/", views.ServiceAccountsPage.as_view(), name="service-accounts"),
    path("settings/service-accounts/<int:pk>/", views.ServiceAccountPage.as_view(), name="service-account"),
    path("settings/service-accounts/<int:pk>/change/", views.ServiceAccountChange.as_view(), name="service-change"),
    path(
        "settings/service-accounts/<int:pk>/tokens/<int:token_pk>/revoke/",
        views.ServiceTokenRevoke.as_view(),
        name="service-token-revoke",
    ),
    path("settings/people/invitations/", views.InvitationsPage.as_view(), name="invitations"),
    path("settings/people/invitations/<int:pk>/revoke/", views.InvitationRevoke.as_view(), name="invitation-revoke"),
]
