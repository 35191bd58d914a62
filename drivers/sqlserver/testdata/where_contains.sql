-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @v1 mssql.NVarCharMax: status
-- @v2 mssql.NVarCharMax: a
-- @v3 mssql.NVarCharMax: a
-- @v4 mssql.NVarCharMax: total
-- @v5 mssql.NVarCharMax: 1
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v1 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v1)) as p1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v4 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v4)) as p2
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and ((exists (select * from openjson(case when p1.type in (4, 5) then p1.value end) as e where p1.type = 4 and e.type = 1 and e.value = @v2 collate Latin1_General_100_BIN2 and datalength(e.value) = datalength(@v2) or p1.type = 5 and e.[key] = @v3 collate Latin1_General_100_BIN2 and datalength(e.[key]) = datalength(@v3)))
and (p2.type in (4, 5) and not exists (select * from openjson(case when p2.type in (4, 5) then p2.value end) as e where p2.type = 4 and e.type = 2 and e.value = @v5 collate Latin1_General_100_BIN2 and datalength(e.value) = datalength(@v5))))
option (recompile, maxdop 2, max_grant_percent = 10);
