-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @v1 mssql.NVarCharMax: status
-- @v2 mssql.NVarCharMax: true
-- @v3 mssql.NVarCharMax: total
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v1 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v1)) as p1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v3 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v3)) as p2
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and ((p1.type <> 3 or p1.value <> @v2 collate Latin1_General_100_BIN2 or datalength(p1.value) <> datalength(@v2))
or (p2.type <> 0))
option (recompile, maxdop 2, max_grant_percent = 10);
