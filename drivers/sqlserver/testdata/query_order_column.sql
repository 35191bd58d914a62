-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @limit int64: 10
-- @v1 mssql.VarCharMax: 61
-- @v2 mssql.VarCharMax: 3062
-- @v3 mssql.VarCharMax: 3062
set nocount on;
set lock_timeout 10000;
select t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from (
select top (@limit) t.id_bytes, t.[key status] as s1
from manifold_documents.[order-summary.12] as t
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and (t.[key status] >= convert(varbinary(1002), @v3, 2) and (t.[key status] > convert(varbinary(1002), @v2, 2) or t.[key status] = convert(varbinary(1002), @v2, 2) and t.id_bytes > convert(varbinary(513), @v1, 2)))
order by t.[key status], t.id_bytes
) as o
inner join manifold_documents.[order-summary.12] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = o.id_bytes
order by o.s1, o.id_bytes
option (recompile, loop join, force order, maxdop 2, max_grant_percent = 10);
