"""Training of the shipped Costream weights: corpus, training, evaluation. Nothing else of Sluice imports it."""
