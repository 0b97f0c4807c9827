"""`python -m agent`."""

from agent.cli import block_pandas, main

block_pandas()
raise SystemExit(main())
