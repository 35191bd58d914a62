-- Erasing removes rows by ranges of a table's primary key. ctid stays granted for the previous release.
grant select (name, secret_id) on manifold.webhook_secrets to manifold_retention;
