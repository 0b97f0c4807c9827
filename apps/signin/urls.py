from django.urls import path

from apps.signin.pages import admin, entrance, links, own

app_name = "signin"
urlpatterns = [
    path("login/", entrance.LoginView.as_view(), name="login"),
    path("login/code/", entrance.CodeView.as_view(), name="code"),
    path("login/provider/", entrance.ProviderView.as_view(), name="provider"),
    path("login/provider/answer/", entrance.ProviderAnswerView.as_view(), name="provider-answer"),
    path(
        "login/provider/logout/", entrance.ProviderLogoutView.as_view(), name="provider-logout"
    ),  # asked by the provider
    path("login/link/", entrance.LinkView.as_view(), name="link"),
    path("login/forgotten/", links.ResetRequestView.as_view(), name="forgotten"),
    path("login/reset/<str:token>/", links.ResetView.as_view(), name="reset"),
    path("invitation/<str:token>/", links.InvitationView.as_view(), name="invitation"),
    path("logout/", entrance.LogoutView.as_view(), name="logout"),  # POST only
    path("settings/sign-in/", own.SignInPage.as_view(), name="settings"),
    path("settings/sign-in/sessions/end/", own.SessionsEnd.as_view(), name="sessions-end"),
    path("settings/sign-in/sessions/<str:session_id>/end/", own.SessionEnd.as_view(), name="session-end"),
    path("settings/sign-in/unlink/", own.Unlink.as_view(), name="unlink"),
    path("settings/second-factor/", own.SecondFactorView.as_view(), name="second-factor"),
    path("settings/second-factor/remove/", own.SecondFactorRemove.as_view(), name="second-factor-remove"),
    path("settings/second-factor/codes/", own.RecoveryCodesView.as_view(), name="recovery-codes"),
    path("settings/service-accounts/", admin.ServiceAccountsPage.as_view(), name="service-accounts"),
    path("settings/service-accounts/<int:pk>/", admin.ServiceAccountPage.as_view(), name="service-account"),
    path(
        "settings/service-accounts/<int:pk>/change/",
        admin.ServiceAccountChange.as_view(),
        name="service-change",
    ),
    path(
        "settings/service-accounts/<int:pk>/tokens/<int:token_pk>/revoke/",
        admin.ServiceTokenRevoke.as_view(),
        name="service-token-revoke",
    ),
    path("settings/people/invitations/", admin.InvitationsPage.as_view(), name="invitations"),
    path(
        "settings/people/invitations/<int:pk>/revoke/",
        admin.InvitationRevoke.as_view(),
        name="invitation-revoke",
    ),
]
