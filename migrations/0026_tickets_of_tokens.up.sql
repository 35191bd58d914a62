-- What a ticket keeps of an issuer's token, if it replaces one instead of a key. The key is then the nil UUID, which no key
-- has: a process of the previous release refuses such a ticket.
alter table manifold.tickets add column token jsonb;
