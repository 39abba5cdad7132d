"""Transfer: stages dataset versions into object storage, verified, under a manifest."""
