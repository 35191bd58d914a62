-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @v1 mssql.NVarCharMax: status
-- @v2 mssql.NVarCharMax: ["a",1,null]
-- @v3 mssql.VarCharMax: 3061
-- @v4 mssql.VarCharMax: 20323530303131
-- @v5 mssql.VarCharMax: 10
-- @v6 mssql.NVarCharMax: total
-- @v7 mssql.NVarCharMax: [true]
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v1 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v1)) as p1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v6 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v6)) as p2
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and ((t.[key status] in (convert(varbinary(1002), @v3, 2), convert(varbinary(1002), @v4, 2), convert(varbinary(1002), @v5, 2)) and exists (select * from openjson(@v2) as c where c.type = p1.type and (c.type = 0 or c.value = p1.value collate Latin1_General_100_BIN2 and datalength(c.value) = datalength(p1.value))))
and (p2.type is not null and not exists (select * from openjson(@v7) as c where c.type = p2.type and (c.type = 0 or c.value = p2.value collate Latin1_General_100_BIN2 and datalength(c.value) = datalength(p2.value)))))
option (recompile, maxdop 2, max_grant_percent = 10);
