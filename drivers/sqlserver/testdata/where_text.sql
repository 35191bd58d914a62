-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @v1 mssql.NVarCharMax: status
-- @v2 mssql.VarCharMax: 61002500
-- @v3 mssql.VarCharMax: 306125
-- @v4 mssql.VarCharMax: 306125ff
-- @v5 mssql.NVarCharMax: total
-- @v6 mssql.VarCharMax: 3dd800de
-- @v7 mssql.NVarCharMax: [_]
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v1 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v1)) as p1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v5 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v5)) as p2
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and (((t.[key status] >= convert(varbinary(1002), @v3, 2) and t.[key status] < convert(varbinary(1002), @v4, 2) or t.[key status] = 0xff) and p1.type = 1 and case when datalength(p1.value) >= 4 then substring(convert(varbinary(max), p1.value), 1, 4) end = convert(varbinary(max), @v2, 2))
and (p2.type = 1 and (datalength(p2.value) < 4 or case when datalength(p2.value) >= 4 then substring(convert(varbinary(max), p2.value), datalength(p2.value) - 3, 4) end <> convert(varbinary(max), @v6, 2)))
and (p2.type = 1 and charindex(convert(nvarchar(4000), @v7) collate Latin1_General_100_BIN2, p2.value) > 0)
and (p2.type = 1))
option (recompile, maxdop 2, max_grant_percent = 10);
