"""Django settings. Values come from `console.env`; nothing here reads the environment itself."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import dj_database_url
from kombu import Queue

from console.env import BASE_DIR, ENV
from console.openapi import TAGS
from console.secret_key import kept_secrets
from engine.redaction import note_secret

VAR_DIR = ENV.var_dir
VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds sessions and what people uploaded

SECRET_KEY, *SECRET_KEY_FALLBACKS = [
    *([ENV.secret_key] if ENV.secret_key else kept_secrets(VAR_DIR / "secret_key")),
    *ENV.secret_key_fallbacks,
]
for _secret in (
    SECRET_KEY,
    *SECRET_KEY_FALLBACKS,
    *(urlsplit(url).password for url in (ENV.database_url, ENV.redis_url, ENV.email_url, ENV.otlp_endpoint)),
):
    note_secret(_secret)
    note_secret(unquote(_secret or ""))
DEBUG = ENV.debug
ALLOWED_HOSTS = ENV.allowed_hosts
CSRF_TRUSTED_ORIGINS = ENV.trusted_origins
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
AUTH_USER_MODEL = "accounts.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "apps.core",
    "apps.ui",
    "apps.ledger",
    "apps.accounts",
    "apps.signin",
    "apps.jobs",
    "apps.fleet",
    "apps.saved_views",
    "apps.queries",
    "apps.policies",
    "apps.telemetry",
    "apps.results",
    "apps.microbatch",
    "apps.measurements",
    "apps.rollouts",
    "apps.estimates",
    "apps.connections",
    "apps.predictions",
    "apps.admission",
    "apps.planning",
    "apps.reports",
    "apps.incidents",
    "apps.exports",
    "apps.operation",
    "apps.kubernetes",
    "apps.pages",
    "apps.demo",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",  # its middleware; the table goes on for processes of before, which are being replaced
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "django_celery_beat",
]

MIDDLEWARE = [
    "apps.core.middleware.AccessLogMiddleware",
    "apps.core.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "apps.ui.parts.ContentSecurityPolicyMiddleware",
    "apps.core.middleware.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "apps.accounts.middleware.SenderMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "apps.operation.write_lock.ReadOnlyMiddleware",
    "apps.signin.middleware.SignInMiddleware",
    "apps.ledger.middleware.OriginMiddleware",
    "apps.ui.parts.LivePartMiddleware",
    "apps.accounts.middleware.TimeZoneMiddleware",
    "apps.accounts.middleware.CallerMiddleware",
    "apps.core.middleware.ErrorPageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.pages.context.frame",
            ],
            "builtins": ["django.templatetags.static", "apps.ui.templatetags.ui", "apps.ui.templatetags.layout"],
        },
    },
]

# -- database: SQLite needs WAL, IMMEDIATE transactions and a time-out together to serve several writers
if ENV.database_url:
    # given back after each request: under ASGI every request has a thread of its own, whose connection none would use
    # again. Many at once share a pool, and wait for each other rather than use up the server's connections.
    DATABASES = {"default": dj_database_url.parse(ENV.database_url, conn_max_age=0, conn_health_checks=True)}
    if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
        _POOL = {"min_size": 1, "max_size": ENV.database_connections, "timeout": 20, "max_idle": 60}
        DATABASES["default"].setdefault("OPTIONS", {})["pool"] = _POOL
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(ENV.var_dir / "sluice.sqlite3"),
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
            },
        }
    }

# -- redis: broker, channel layer, cache
REDIS_URL = ENV.redis_url
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "sluice"},
    }
}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# -- celery
CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CHANNEL_ERROR_RETRY = True  # a worker outlives a Redis that takes no writes, being full
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": ENV.task_visibility_s,
    "unacked_restore_interval": 2,
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 30,  # a worker killed while it held this lock delays the others by so much
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "queue_order_strategy": "priority",  # a worker of both queues takes what people wait for first
}
INTERACTIVE_QUEUE, BACKGROUND_QUEUE = "interactive", "background"
CELERY_TASK_QUEUES = [Queue(name, routing_key=name) for name in (INTERACTIVE_QUEUE, BACKGROUND_QUEUE)]
CELERY_TASK_DEFAULT_QUEUE = CELERY_TASK_DEFAULT_ROUTING_KEY = BACKGROUND_QUEUE
# ranks within a queue, the least first: what people look at, what else they wait for, the schedule, what takes minutes
# and somebody asked for, and what takes minutes and nobody did. A task without one would go first
RANKS = FIRST_PRIORITY, ASKED_PRIORITY, SCHEDULED_PRIORITY, LONG_PRIORITY, LONG_UNASKED_PRIORITY = 0, 3, 6, 8, 9
CELERY_BROKER_TRANSPORT_OPTIONS["priority_steps"] = RANKS  # the broker keeps only these apart
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONCURRENCY = ENV.worker_concurrency
CELERY_TASK_TIME_LIMIT = ENV.task_visibility_s * 0.9
CELERY_TASK_SOFT_TIME_LIMIT = ENV.task_visibility_s * 0.8
CELERY_BEAT_SCHEDULER = "console.beat:SoleScheduler"  # a second beat stands by
CELERY_TIMEZONE = "UTC"
_EVERY_S = {  # seconds by the work of the schedule
    "sweep_jobs": 10.0,
    "review_queue": 15.0,
    "refresh_estimates": 30.0,
    "review_plans": 60.0,
    "run_due_reports": 15.0,
    "send_deliveries": 20.0,
    "renew_alerts": 60.0,
    "renew_forecasts": 60.0,
    "refine_measurements": 10.0,
    "advance_evacuations": 5.0,
    "advance_rollouts": 5.0,
    "advance_trials": 5.0,
    "renew_refined": 60.0,
    "observe_accuracy": 15.0,
    "refresh_objectives": 15.0,
    "observe_executions": 60.0,
    "poll_spark_queries": 30.0,
    "poll_connections": 2.0,
    "write_receipts": 60.0,
    "renew_provider_sessions": 30.0,
    "seal_ledger": 60.0,
    "forward_ledger": 60.0,
    "run_due_history": 300.0,
    "purge": 3600.0,
}
# carried out or taken back while somebody watches: it waits for no search of minutes, behind which it would expire
_WATCHED = frozenset({"advance_evacuations", "advance_rollouts", "poll_connections"})
CELERY_BEAT_SCHEDULE = {
    name.replace("_", "-"): {
        "task": f"workers.{name}",
        "schedule": every_s,
        "options": {
            "expires": every_s,
            "priority": SCHEDULED_PRIORITY,
            "queue": INTERACTIVE_QUEUE if name in _WATCHED else BACKGROUND_QUEUE,
        },
    }
    for name, every_s in _EVERY_S.items()
}

# -- plans
PLANS_EVERY_S = ENV.plans_every_h * 3600.0  # plans are compared again after so long; 0: only when statistics drift

# -- ledger
UNDO_DAYS = ENV.undo_days  # so long deleted objects and replaced arrivals are kept
LEDGER_SYSLOG = ENV.ledger_syslog  # tcp or tls, with a host
LEDGER_WEBHOOK = ENV.ledger_webhook
LEDGER_WEBHOOK_SECRET_FILE = ENV.ledger_webhook_secret_file
LEDGER_DAYS = ENV.ledger_days  # so long the ledger tells who changed what

# -- REST: classes are named by their own modules, since apps.core.rest.api needs REST framework loaded already
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["apps.accounts.permissions.ScopePermission"],
    "DEFAULT_PAGINATION_CLASS": "apps.core.rest.lists.CursorPagination",
    "DEFAULT_FILTER_BACKENDS": ["apps.core.rest.lists.StrictFilterBackend"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.core.rest.parsers.StrictJSONParser", "rest_framework.parsers.MultiPartParser"],
    "DEFAULT_SCHEMA_CLASS": "apps.core.rest.schema.ApiSchema",
    "EXCEPTION_HANDLER": "apps.core.rest.problems.exception_handler",
    "DEFAULT_THROTTLE_CLASSES": ["apps.core.counters.TokenRateThrottle"],
    "DEFAULT_THROTTLE_RATES": {"token": "1200/min"},
    "NUM_PROXIES": 0,  # console.asgi has settled the address already, from proxies that are configured
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Sluice API",
    "DESCRIPTION": (
        "Register fleets and queries, estimate latency, preview and apply admissions.\n\n"
        "- Send a token as `Authorization: Bearer slu_…` (Settings, Tokens).\n"
        "- Lists come in pages: follow `next`; `page_size` is at most 200.\n"
        "- What takes longer answers 202 with the `Location` of a job; `Prefer: wait=10` waits for the result.\n"
        "- `Idempotency-Key` makes a POST safe to repeat; `If-Match` protects updates; `If-None-Match` saves reads.\n"
        "- Every error is `application/problem+json` (RFC 9457) with `code`, `faults` and `request_id`;"
        " [errors](/help/docs/errors) lists the codes."
    ),
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "COMPONENT_SPLIT_REQUEST": True,  # what is read only has no place in a request, and clients would ask for it
    "SERVERS": [{"url": ENV.public_url.rstrip("/") or "/", "description": "This console"}],
    "TAGS": TAGS,
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "apps.core.rest.schema.describe_conventions",
        "console.openapi.add_examples",
    ],
    "ENUM_NAME_OVERRIDES": {
        "AdmissionSource": "apps.admission.choices.AdmissionSource",
        "AdmissionState": "apps.admission.choices.AdmissionState",
        "EvacuationState": "apps.planning.choices.EVACUATION_STATES",
        "Evidence": "apps.fleet.choices.Evidence",
        "EvidenceRule": "apps.policies.choices.EVIDENCE_RULES",
        "FitReason": "apps.microbatch.models.FitReason",
        "HistoryJob": "apps.planning.choices.HistoryJob",
        "IncidentCause": "apps.incidents.choices.IncidentCause",
        "IncidentChannelKind": "apps.incidents.choices.ChannelKind",
        "IncidentSeverity": "apps.incidents.choices.IncidentSeverity",
        "IncidentState": "apps.incidents.choices.IncidentState",
        "JobKind": "apps.jobs.models.JobKind",
        "JobState": "apps.jobs.models.JobState",
        "NodeState": "apps.fleet.choices.NodeState",
        "ObjectiveState": "apps.queries.choices.ObjectiveState",
        "OperatorKind": "apps.queries.choices.OperatorKind",
        "ExecutionOrigin": "apps.predictions.choices.ExecutionOrigin",
        "FineTuningState": "apps.predictions.choices.FineTuningState",
        "KubernetesFallback": "apps.fleet.choices.Fallback",
        "ModelOrigin": "apps.predictions.choices.ModelOrigin",
        "ModelState": "apps.predictions.choices.ModelState",
        "PredictedCost": "apps.predictions.choices.COSTS",
        "PredictionPurpose": "apps.predictions.choices.PredictionPurpose",
        "PredictionState": "apps.predictions.choices.PredictionState",
        "TargetMetric": "apps.predictions.choices.TargetMetric",
        "WrongReason": "apps.admission.choices.WrongReason",
        "PlacementMoveState": "apps.planning.choices.MoveState",
        "PlacementState": "apps.planning.choices.PLACEMENT_STATES",
        "PlanChoice": "apps.planning.choices.PlanChoice",
        "PlanEngine": "apps.planning.choices.PlanEngine",
        "PlanComparisonReason": "apps.planning.choices.ComparisonReason",
        "PlanComparisonState": "apps.planning.choices.COMPARISON_STATES",
        "QueryState": "apps.queries.choices.QueryState",
        "ConnectionEngine": "apps.connections.choices.ConnectionEngine",
        "ConnectionOrigin": "apps.connections.choices.ConnectionOrigin",
        "ConnectionState": "apps.connections.choices.ConnectionState",
        "DeliveryState": "apps.core.deliveries.DeliveryState",
        "RefinedConfigOrigin": "apps.rollouts.models.ConfigOrigin",
        "RefinedConfigState": "apps.rollouts.models.ConfigState",
        "RunOrigin": "apps.estimates.choices.RunOrigin",
        "RolloutMemberState": "apps.rollouts.models.MemberState",
        "RolloutState": "apps.rollouts.models.RolloutState",
        "ReplayedFact": "engine.admission.replay.TAKEN",
        "ReportState": "apps.reports.choices.ReportState",
        "Scope": "apps.accounts.choices.Scope",
        "SparkQueryOrigin": "apps.microbatch.models.SparkQueryOrigin",
        "SparkQueryState": "apps.microbatch.models.SparkQueryState",
        "TokenState": "apps.accounts.choices.TokenState",
        "InvitationState": "apps.signin.choices.InvitationState",
        "Verdict": "apps.admission.choices.Verdict",
        "WhatIfState": "apps.planning.choices.ANSWER_STATES",
    },
}
UPLOAD_MAX_BYTES = int(ENV.upload_max_mb * 1e6)
BASES_MAX_BYTES = ENV.bases_max_mb * 1_000_000
DATA_UPLOAD_MAX_MEMORY_SIZE = UPLOAD_MAX_BYTES
FILE_UPLOAD_MAX_MEMORY_SIZE = 2_500_000
STREAM_MAX_BYTES = int(ENV.stream_max_mb * 2**20)  # of telemetry that waits in Redis for the stream processor

# -- sessions and security
CSRF_FAILURE_VIEW = "apps.core.problem_details.csrf_failure"
LOGIN_URL = "signin:login"
LOGIN_REDIRECT_URL = "/"
SESSION_ENGINE = "apps.signin.session_store"
PASSWORD_RESET_TIMEOUT = 3600
PROVIDER = ENV.provider  # that people sign in with; None: local accounts alone
note_secret(PROVIDER.client_secret if PROVIDER else "")
PROVIDER_ROLE = ENV.oidc_role.replace("none", "")  # on everything, of people whom the provider brings
LOCAL_ACCOUNTS = frozenset(ENV.local_accounts)  # that sign in with a password; empty: all
SECOND_FACTOR_ROLES = frozenset(ENV.second_factor_roles)
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = ENV.https
SECURE_HSTS_SECONDS = 31_536_000 if ENV.https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = ENV.https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.https else None
# what processes beside this one ask without the proxy: probes, scrapers, and the stream processor
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^metrics$", r"^api/v1/stream-processor/"]
X_FRAME_OPTIONS = "DENY"
DEMO = ENV.demo

# -- mail and webhooks: how reports leave
PUBLIC_URL = ENV.public_url.rstrip("/")
OTLP_ENDPOINT = ENV.otlp_endpoint.rstrip("/")
WEBHOOK_PRIVATE = ENV.webhook_private
CONNECT_HOSTS = ENV.connect_hosts  # in private networks, that connections and channels may ask
METRICS_NETWORKS = ENV.metrics_networks  # that /metrics answers without a token
EMBED_ORIGINS = ENV.embed_origins  # of pages that may show a panel of ours in a frame
METRICS_LISTED = ENV.metrics_listed  # queries, and nodes, of a scrape
_MAIL = urlsplit(ENV.email_url)
EMAIL_CONFIGURED = bool(ENV.email_url)
EMAIL_HOST = _MAIL.hostname or "localhost"
EMAIL_PORT = _MAIL.port or {"smtps": 465, "smtp+tls": 587}.get(_MAIL.scheme, 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_MAIL.username or ""), unquote(_MAIL.password or "")
EMAIL_USE_SSL, EMAIL_USE_TLS = _MAIL.scheme == "smtps", _MAIL.scheme == "smtp+tls"
DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.email_from

# -- time: UTC inside; the user's zone at the edge
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-gb"
USE_I18N = False

# -- static files
STATIC_URL = "/static/"
STATIC_ROOT = ENV.var_dir / "static"
STATIC_ROOT.mkdir(exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"]
# what is collected is compressed as well, to a third; where nothing is (in tests, say) files come from their folders
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = DEBUG or not any(STATIC_ROOT.iterdir())

# -- logs: requests go to a file of their own, which is there before an agent follows it
ACCESS_LOG = VAR_DIR / "log" / "access.log"
ACCESS_LOG.parent.mkdir(exist_ok=True)

_TALKATIVE = ("uvicorn.error", "websockets", "httpcore", "django.db.backends", "authlib")
_WITH_HANDLERS = ("django", "django.server", "uvicorn", "uvicorn.access")
_IS_JSON = ENV.log_format == "json"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "apps.core.logs.line_formatter", "is_json": _IS_JSON},
        "bare": {"()": "apps.core.logs.bare_formatter"},
    },
    "filters": {"sparse": {"()": "apps.core.logs.SparseFilter"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "line"},
        "none": {"class": "logging.NullHandler"},
        "access": {
            "class": "logging.handlers.RotatingFileHandler",
            "filename": ACCESS_LOG,
            "maxBytes": 10_000_000,
            "backupCount": 3,
            "delay": True,  # only the web process ever writes to it
            "formatter": "bare",
        },
    },
    "loggers": {
        # as JSON they go to the standard output as well, in place of uvicorn's own, which know no request
        "sluice.access": {"handlers": ["access"], "level": "INFO", "propagate": _IS_JSON},
        "opentelemetry.exporter.otlp.proto.http.trace_exporter": {"filters": ["sparse"]},
        # what it says of addresses has their secrets; why a message did not arrive is kept with it
        "apprise": {"handlers": ["none"], "propagate": False},
        # handlers that Django (with SLUICE_DEBUG) and uvicorn bring know nothing of secrets: lines leave by the root's
        **{name: {"handlers": [], "level": "INFO", "propagate": True} for name in _WITH_HANDLERS},
        # what these say below INFO are headers, cookies, and statements with their values
        **{name: {"level": "INFO"} for name in _TALKATIVE},
        **({"uvicorn.access": {"handlers": ["none"], "propagate": False}} if _IS_JSON else {}),
    },
    "root": {"handlers": ["console"], "level": ENV.log_level},
}
