-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @limit int64: 10
-- @v1 mssql.VarCharMax: 61
set nocount on;
set lock_timeout 10000;
select t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from (
select top (@limit) u.id_bytes, u.s0, u.s1 from (
select s.id_bytes, s.s0, s.s1 from (
select top (@limit) t.id_bytes, 1 as s0, t.[key status] as s1
from manifold_documents.[order-summary.12] as t
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and t.[key status] = 0xff and t.id_bytes > convert(varbinary(513), @v1, 2)
order by t.id_bytes
) as s
) as u
order by u.s0, u.s1 desc, u.id_bytes
) as o
inner join manifold_documents.[order-summary.12] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = o.id_bytes
order by o.s0, o.s1 desc, o.id_bytes
option (recompile, loop join, force order, maxdop 2, max_grant_percent = 10);
