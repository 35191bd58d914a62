alter table manifold.webhook_secrets drop column key_id;
