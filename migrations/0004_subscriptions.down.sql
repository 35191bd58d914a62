drop table manifold.tickets, manifold.subscription_members, manifold.dead_letters, manifold.subscription_retries,
  manifold.subscription_ledgers, manifold.subscriptions;
