"""Plans of one query: compared by estimate, rewritten by rules that keep their meaning, sampled, watched for drift."""
