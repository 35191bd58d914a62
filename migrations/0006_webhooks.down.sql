drop table manifold.replays, manifold.webhook_claims, manifold.webhook_attempts, manifold.webhook_secrets, manifold.webhooks;
