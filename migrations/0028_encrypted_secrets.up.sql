-- The name of the key that a webhook's secret is encrypted with; null: it is not encrypted.
alter table manifold.webhook_secrets add column key_id text collate "C";
