alter table manifold.keys drop column expires_at, drop column networks, drop column last_used_at, drop column rotated_to;
