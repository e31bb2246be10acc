"""Files: study.yaml, CSV tables, JSON, atomic writes."""
