"""`python -m agent`."""

from agent.cli import main
from agent.import_block import block_pandas

block_pandas()
raise SystemExit(main())
