revoke select (name, secret_id) on manifold.webhook_secrets from manifold_retention;
