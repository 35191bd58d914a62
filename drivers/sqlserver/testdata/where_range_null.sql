-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and (1 = 0)
option (recompile, maxdop 2, max_grant_percent = 10);
