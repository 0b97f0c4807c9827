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
