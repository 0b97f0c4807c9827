"""Several hosts on one machine, for real: each with a network, a link's rate and a share of the cores of its own."""
