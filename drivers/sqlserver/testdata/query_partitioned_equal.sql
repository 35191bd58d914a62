-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @limit int64: 10
-- @v1 mssql.VarCharMax: f19011218159077734ea777e1b855ab1
-- @v2 mssql.NVarCharMax: customer
-- @v3 mssql.NVarCharMax: id
-- @v4 mssql.NVarCharMax: c-17
-- @v5 mssql.VarCharMax: 306f70656e
-- @v6 mssql.NVarCharMax: status
-- @v7 mssql.NVarCharMax: open
set nocount on;
set lock_timeout 10000;
select top (@limit) t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v2 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v2)) as p1
outer apply (select top (1) j.type, j.value from openjson(case when p1.type = 5 then p1.value end) as j where j.[key] = @v3 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v3)) as p2
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v6 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v6)) as p3
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and ((t.[partition customer.id] = convert(binary(16), @v1, 2) and p2.type = 1 and p2.value = @v4 collate Latin1_General_100_BIN2 and datalength(p2.value) = datalength(@v4))
and (t.[key status] = convert(varbinary(1002), @v5, 2) and p3.type = 1 and p3.value = @v7 collate Latin1_General_100_BIN2 and datalength(p3.value) = datalength(@v7)))
order by t.id_bytes
option (recompile, maxdop 2, max_grant_percent = 10);
