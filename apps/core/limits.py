"""Limits of what requests and rows hold: one table for models, serializers and forms.

Lengths are numbers of characters. A length that a model uses is a column's width: change it with a migration.
"""

from __future__ import annotations

# -- names
MAX_SLUG = 64  # clusters, pools, nodes, queries, agents and their streams: names that stand in addresses
MAX_NAME = 80  # names that people give and need not type: reports, scenarios, rules, teams
MAX_ELEMENT_NAME = 120  # operators, their sources and columns of results
MAX_QUERY_PATH = 140  # cluster/query, and a core of a node
MAX_OPERATOR_PATH = 250  # query/operator
MAX_HOST_NAME = 253  # of DNS
MAX_TIME_ZONE = 64
MAX_VERSION_TEXT = 40  # of programs
MAX_KIND = 20  # kinds and small words of agents that the console need not know
MAX_STATE_TEXT = 40  # states and policies in the words of agents
MAX_PLAN_KEY = 40  # r1, the key of a plan in a ranking
DIGEST_LENGTH = 64  # SHA-256 in hexadecimal digits
MAX_GENERATION = 64  # ids that agents make up
PREFIX_LENGTH = 12  # of secrets, shown to recognise them

# -- texts
MAX_SHORT_NOTE = 80
MAX_NOTE = 200  # descriptions, notes, titles and steps of jobs
MAX_REASON = 300  # why somebody wants or did something, and why something failed
MAX_FAULT = 400  # faults that agents and the stream processor report
MAX_MESSAGE = 500  # findings and explanations of runs, conditions of rules
MAX_URL = 500
MAX_PAGE_URL = 300  # of the console's own pages
MAX_DESCRIPTION = 10_000  # of a query; lists show it, two hundred at a time

# -- numbers
MAX_VERSION_NUMBER = 10**9 - 1  # of queries and configurations, in addresses
MAX_SAMPLE_EVENTS = 10**15  # behind a statistic
MAX_EVENTS_PER_COUNT = 1e12  # so that the sum of a horizon stays far from where floats lose whole events
MAX_WAIT_S = 365 * 86_400.0  # that somebody would wait in a queue

# -- entries
MAX_TRACE_ROWS = 2_000_000  # of an uploaded trace
MAX_BULK_ROWS = 10_000  # of a table of nodes or links
MAX_TABLE_ROWS = 20_000  # of a table that live queries join
MAX_TABLE_COLUMNS = 100
MAX_NAMES_LISTED = 10_000  # queries or agents that one request names
MAX_ENROLMENT_USES = 10_000
MAX_RECIPIENTS = 50  # of one mail
MAX_RULE_WEBHOOKS = 10
MAX_WINDOWS_LISTED = 1000  # results in one answer
MAX_SYNC_OPERATORS = 300  # operators of a document that are stored within about a second
MAX_REQUEST_OPERATORS = 5_000  # of a document that a request checks, in about a second; of others its job finds faults

# -- bodies
MAX_UNKNOWN_BYTES = 2**16  # of a body whose sender nobody knows; every endpoint takes as much of those it knows
MAX_JSON_DEPTH = 40  # the deployment document needs 7; deeper nesting is a mistake or an attack on the parser
MAX_ATTACHMENT_BYTES = 15_000_000  # many servers refuse more; the link still leads to it
