-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @v1 mssql.NVarCharMax: total
-- @v2 mssql.VarCharMax: 61
-- @v3 mssql.NVarCharMax: status
-- @v4 mssql.VarCharMax: 61
-- @v5 mssql.VarCharMax: 3061
-- @v6 mssql.VarCharMax: 7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v1 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v1)) as p1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v3 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v3)) as p2
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and ((p1.type = 1 and convert(varbinary(max), convert(varchar(max), p1.value collate Latin1_General_100_BIN2_UTF8)) < convert(varbinary(max), @v2, 2))
and ((t.[key status] >= convert(varbinary(1002), @v5, 2) and t.[key status] < 0x40 or t.[key status] = 0xff) and p2.type = 1 and convert(varbinary(max), convert(varchar(max), p2.value collate Latin1_General_100_BIN2_UTF8)) >= convert(varbinary(max), @v4, 2))
and ((t.[key status] >= 0x30 and t.[key status] < 0x40 or t.[key status] = 0xff) and p2.type = 1 and convert(varbinary(max), convert(varchar(max), p2.value collate Latin1_General_100_BIN2_UTF8)) < convert(varbinary(max), @v6, 2)))
option (recompile, maxdop 2, max_grant_percent = 10);
