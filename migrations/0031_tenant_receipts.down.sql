alter table manifold.tenants drop column last_checkpoint, drop column receipt;
