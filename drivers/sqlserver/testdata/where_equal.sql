-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @v1 mssql.VarCharMax: 306f70656e20
-- @v2 mssql.NVarCharMax: status
-- @v3 mssql.NVarCharMax: open 
-- @v4 mssql.NVarCharMax: total
-- @v5 mssql.NVarCharMax: 0.1
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v2 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v2)) as p1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v4 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v4)) as p2
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and ((t.[key status] = convert(varbinary(1002), @v1, 2) and p1.type = 1 and p1.value = @v3 collate Latin1_General_100_BIN2 and datalength(p1.value) = datalength(@v3))
and (p2.type = 2 and p2.value = @v5 collate Latin1_General_100_BIN2 and datalength(p2.value) = datalength(@v5))
and (p2.type = 0))
option (recompile, maxdop 2, max_grant_percent = 10);
