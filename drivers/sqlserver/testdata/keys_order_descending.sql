-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @limit int64: 10
-- @v1 mssql.VarCharMax: 3062
-- @v2 mssql.VarCharMax: 61
set nocount on;
set lock_timeout 10000;
declare @usable int = case when not exists (select * from manifold_documents.[document_keys] as k inner join manifold_documents.[documents] as t on t.tenant_id = @tenant and t.build = @build and t.id_bytes = k.id_bytes and t.version = k.position
where k.tenant_id = @tenant and k.build = @build and k.id_bytes = 0x and k.place = 0) then 0
else 1 end;
if @usable = 1
begin
select f.keyed, t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from (select case when exists (select * from manifold_documents.[document_keys] as k inner join manifold_documents.[documents] as t on t.tenant_id = @tenant and t.build = @build and t.id_bytes = k.id_bytes and t.version = k.position
where k.tenant_id = @tenant and k.build = @build and k.id_bytes = 0x and k.place = 0) then 1 else 0 end as keyed) as f
left join (
select top (@limit) u.id_bytes, u.s0, u.s1 from (
select s.id_bytes, s.s0, s.s1 from (
select top (@limit) k.id_bytes, 0 as s0, k.sort_key as s1
from (
select k.id_bytes, k.sort_key from manifold_documents.[document_keys] as k where k.tenant_id = @tenant and k.build = @build and k.place = 1
) as k
inner join manifold_documents.[documents] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = k.id_bytes
where t.tenant_id = @tenant and t.build = @build and k.id_bytes > 0x
and k.sort_key <= convert(varbinary(1002), @v1, 2) and (k.sort_key < convert(varbinary(1002), @v1, 2) or k.id_bytes > convert(varbinary(513), @v2, 2))
order by k.sort_key desc, k.id_bytes
) as s
union all
select s.id_bytes, s.s0, s.s1 from (
select top (@limit) k.id_bytes, 1 as s0, k.sort_key as s1
from (
select k.id_bytes, k.sort_key from manifold_documents.[document_keys] as k where k.tenant_id = @tenant and k.build = @build and k.place = 1
) as k
inner join manifold_documents.[documents] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = k.id_bytes
where t.tenant_id = @tenant and t.build = @build and k.id_bytes > 0x
and k.sort_key = 0xff
order by k.id_bytes
) as s
) as u
order by u.s0, u.s1 desc, u.id_bytes
) as o on f.keyed = 1
left join manifold_documents.[documents] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = o.id_bytes
order by o.s0, o.s1 desc, o.id_bytes
option (recompile, loop join, force order, maxdop 2, max_grant_percent = 10);
end
else
select @usable, null, null, null;
