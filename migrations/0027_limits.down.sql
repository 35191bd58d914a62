alter table manifold.keys drop column limits;
drop table manifold.plans, manifold.tenant_limits, manifold.limit_ledgers, manifold.quota_checks, manifold.stored_events,
  manifold.usage_days, manifold.usage_writers;
