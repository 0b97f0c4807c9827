"""Commands that speak to a console over its REST API: `./sluice admit` and `./sluice estimate`, fit for a pipeline."""
