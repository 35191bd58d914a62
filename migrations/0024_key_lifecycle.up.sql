-- The previous release ignores expires_at and networks.
alter table manifold.keys
  add column expires_at   timestamptz,                 -- the key does not work from then on
  add column networks     cidr[] not null default '{}', -- the client addresses from which it works; empty: all
  add column last_used_at timestamptz,                 -- written in the background, every ten minutes at most
  add column rotated_to   uuid;                        -- the key that replaces it
