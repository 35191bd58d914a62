-- What is left of a deleted tenant's log: its last signed checkpoint, kept while the tenant is deleted; and what says what was
-- deleted, a signed note.
alter table manifold.tenants add column last_checkpoint text, add column receipt text;
