"""`python -m agent`."""

from agent.cli import main
from agent.without_pandas import keep_away

keep_away()
raise SystemExit(main())
