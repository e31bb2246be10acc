"""The dashboard and the scoring pages: `fsc serve`."""
