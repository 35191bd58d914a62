-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @limit int64: 10
-- @v1 mssql.VarCharMax: 61
-- @v2 mssql.VarCharMax: 306f70656e20
-- @v3 mssql.NVarCharMax: status
-- @v4 mssql.NVarCharMax: open 
-- @v5 mssql.NVarCharMax: total
-- @v6 mssql.NVarCharMax: 0.1
set nocount on;
set lock_timeout 10000;
select top (@limit) t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v3 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v3)) as p1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v5 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v5)) as p2
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > convert(varbinary(513), @v1, 2)
and ((t.[key status] = convert(varbinary(1002), @v2, 2) and p1.type = 1 and p1.value = @v4 collate Latin1_General_100_BIN2 and datalength(p1.value) = datalength(@v4))
and (p2.type = 2 and p2.value = @v6 collate Latin1_General_100_BIN2 and datalength(p2.value) = datalength(@v6))
and (p2.type = 0))
order by t.id_bytes
option (recompile, maxdop 2, max_grant_percent = 10);
