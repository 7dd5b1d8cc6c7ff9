"""One golden of two approvals, for git: ``approval_merge``, by ``joins`` of each part and ``noise_joins``."""
