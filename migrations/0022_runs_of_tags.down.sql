alter table manifold.event_tags no force row level security;
create temporary table lines on commit drop as
  select g.tenant_id, g.position + l.line - 1 as position, l.tags, nullif(split_part(g.derived, e'\n', l.line::integer), '') as derived
  from manifold.event_tags g cross join lateral string_to_table(g.tags, e'\n') with ordinality as l(tags, line)
  where l.tags <> '';
truncate manifold.event_tags;
alter table manifold.event_tags
  alter column tags type text[] collate "C" using string_to_array(tags, ' '),
  alter column derived type text[] collate "C" using string_to_array(derived, ' ');
insert into manifold.event_tags (tenant_id, position, tags, derived)
  select tenant_id, position, string_to_array(tags, ' '), string_to_array(derived, ' ') from lines;
alter table manifold.event_tags force row level security;
